#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Part {
  std::string name;
  std::optional<uint16_t> number;
  uint16_t count = 3;
  int32_t tensors_of_all = 3;
  std::vector<std::string> tensors = {};
};

class GgufSplitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("gguf_split_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A file whose tensors hold their place in the whole model, counted from 1.
  void Write(const Part& part) {
    GgufWriter writer;
    if (part.number) {
      ASSERT_TRUE(writer.Set("split.no", *part.number));
      ASSERT_TRUE(writer.Set("split.count", part.count));
      ASSERT_TRUE(writer.Set("split.tensors.count", part.tensors_of_all));
    }
    ASSERT_TRUE(writer.Set("general.name", part.name));
    const std::vector<uint64_t> dims = {2};
    for (const std::string& name : part.tensors) {
      ASSERT_TRUE(writer.AddTensor(name, DType::kF32, dims));
    }
    auto output = writer.Begin(folder_ / part.name);
    ASSERT_TRUE(output) << output.error().ToString();
    for ([[maybe_unused]] const std::string& name : part.tensors) {
      const float values[2] = {static_cast<float>(++written_), 0.5f};
      ASSERT_TRUE(output->Append(std::as_bytes(std::span(values))));
    }
    ASSERT_TRUE(output->Finish());
  }

  // Three parts, the first without tensors.
  void WriteModel() {
    Write({.name = "m-00001-of-00003.gguf", .number = 0});
    Write({.name = "m-00002-of-00003.gguf", .number = 1, .tensors = {"b", "a"}});
    Write({.name = "m-00003-of-00003.gguf", .number = 2, .tensors = {"c"}});
  }

  [[nodiscard]] Result<GgufFile> Open(const char* name) const {
    return GgufFile::Open(folder_ / name);
  }
  // The error of opening a file.
  [[nodiscard]] Error ErrorOf(const char* name) const {
    auto file = Open(name);
    EXPECT_FALSE(file) << name;
    return file ? Error{} : file.error();
  }

  fs::path folder_;
  int written_ = 0;
};

TEST_F(GgufSplitTest, AnyPartOpensTheWholeModel) {
  WriteModel();
  for (const char* name :
       {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = Open(name);
    ASSERT_TRUE(file) << file.error().ToString();
    EXPECT_EQ(file->GetString("general.name").value(), "m-00001-of-00003.gguf");
    EXPECT_FALSE(file->Has("split.count"));
    EXPECT_EQ(file->path(), (folder_ / "m-00001-of-00003.gguf").string());
    EXPECT_EQ(file->paths().size(), 3u);
    std::vector<std::string_view> names;
    for (const TensorInfo& tensor : file->tensors()) names.push_back(tensor.name);
    EXPECT_THAT(names, ElementsAre("b", "a", "c"));
    float first = 0;
    for (const auto& [tensor, value] : {std::pair("b", 1.0f), {"a", 2.0f}, {"c", 3.0f}}) {
      const auto data = file->data(*file->FindTensor(tensor));
      ASSERT_EQ(data.size(), 2 * sizeof(float));
      std::memcpy(&first, data.data(), sizeof(first));
      EXPECT_EQ(first, value) << tensor;
      file->Release(data);
    }
    uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) bytes += entry.file_size();
    EXPECT_EQ(file->total_bytes(), bytes);
  }
}

TEST_F(GgufSplitTest, AChangeOfAnyPartIsNoticed) {
  WriteModel();
  const auto file = Open("m-00001-of-00003.gguf");
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->CheckUnchanged());
  fs::resize_file(folder_ / "m-00003-of-00003.gguf", 10);
  ASSERT_FALSE(file->CheckUnchanged());
  EXPECT_EQ(file->CheckUnchanged().error().id, "io.mapped_file_changed");
}

TEST_F(GgufSplitTest, MissingPartsAreNamed) {
  WriteModel();
  fs::remove(folder_ / "m-00001-of-00003.gguf");
  fs::remove(folder_ / "m-00003-of-00003.gguf");
  const Error error = ErrorOf("m-00002-of-00003.gguf");
  EXPECT_EQ(error.id, "gguf.split_missing");
  EXPECT_THAT(error.message, HasSubstr("2 are not next to it: m-00001-of-00003.gguf, "
                                       "m-00003-of-00003.gguf;"));
}

TEST_F(GgufSplitTest, LongListsOfMissingPartsAreCut) {
  Write({.name = "m-00001-of-00020.gguf", .number = 0, .count = 20});
  const Error error = ErrorOf("m-00001-of-00020.gguf");
  EXPECT_THAT(error.message, HasSubstr("m-00009-of-00020.gguf and 11 more;"));
  EXPECT_THAT(error.message, Not(HasSubstr("m-00010-of-00020.gguf")));
}

TEST_F(GgufSplitTest, ARenamedPartIsRefused) {
  Write({.name = "model.gguf", .number = 1});
  const Error error = ErrorOf("model.gguf");
  EXPECT_EQ(error.id, "gguf.split");
  EXPECT_THAT(error.message, HasSubstr("ends with '-00002-of-00003.gguf'"));
}

TEST_F(GgufSplitTest, PartsInEachOthersPlacesAreRefused) {
  WriteModel();
  fs::rename(folder_ / "m-00003-of-00003.gguf", folder_ / "m-00002-of-00003.gguf");
  Write({.name = "m-00003-of-00003.gguf", .number = 1});
  const Error error = ErrorOf("m-00001-of-00003.gguf");
  EXPECT_EQ(error.id, "gguf.split");
  EXPECT_THAT(error.message, HasSubstr("says that it is part 3 of 3, expected part 2 of 3"));
}

TEST_F(GgufSplitTest, AWholeModelIsNotAPart) {
  WriteModel();
  Write({.name = "m-00001-of-00003.gguf", .number = std::nullopt});
  for (const char* name : {"m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    EXPECT_THAT(ErrorOf(name).message, HasSubstr("'m-00001-of-00003.gguf' is a whole model"));
  }
  Write({.name = "m-00001-of-00003.gguf", .number = 0});
  Write({.name = "m-00002-of-00003.gguf", .number = std::nullopt});
  EXPECT_THAT(ErrorOf("m-00001-of-00003.gguf").message,
              HasSubstr("'m-00002-of-00003.gguf' is a whole model, expected part 2 of 3"));
}

TEST_F(GgufSplitTest, PartsOfTwoModelsAreRefused) {
  WriteModel();
  Write({.name = "m-00003-of-00003.gguf", .number = 2, .tensors_of_all = 4, .tensors = {"c"}});
  EXPECT_THAT(ErrorOf("m-00001-of-00003.gguf").message,
              HasSubstr("belongs to a model of 4 tensors, the first part to one of 3"));
  Write({.name = "m-00003-of-00003.gguf", .number = 2, .tensors = {"c", "d"}});
  EXPECT_THAT(ErrorOf("m-00001-of-00003.gguf").message,
              HasSubstr("the 3 parts have 4 tensors, expected 3"));
  Write({.name = "m-00003-of-00003.gguf", .number = 2, .tensors = {"a"}});
  const Error twice = ErrorOf("m-00001-of-00003.gguf");
  EXPECT_EQ(twice.id, "gguf.tensor_duplicate");
  EXPECT_THAT(twice.message, HasSubstr("tensor 'a' is in 'm-00002-of-00003.gguf' and in "
                                       "'m-00003-of-00003.gguf'"));
}

}  // namespace
}  // namespace rullama

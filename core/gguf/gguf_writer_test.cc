#include "core/gguf/gguf_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "core/gguf/gguf_test_bytes.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Same metadata and tensors in the same order, with the same bytes.
void ExpectEqualContent(const GgufFile& a, const GgufFile& b) {
  ASSERT_EQ(a.metadata().size(), b.metadata().size());
  for (size_t i = 0; i < a.metadata().size(); ++i) {
    const GgufEntry& x = a.metadata()[i];
    const GgufEntry& y = b.metadata()[i];
    EXPECT_EQ(x.key, y.key);
    EXPECT_EQ(x.value.type, y.value.type) << x.key;
    EXPECT_EQ(x.value.element_type, y.value.element_type) << x.key;
    EXPECT_EQ(x.value.count, y.value.count) << x.key;
    EXPECT_TRUE(std::ranges::equal(x.value.bytes, y.value.bytes)) << x.key;
  }
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const TensorInfo& x = a.tensors()[i];
    const TensorInfo& y = b.tensors()[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.dtype, y.dtype);
    EXPECT_EQ(x.rank, y.rank);
    EXPECT_EQ(x.dims, y.dims);
    EXPECT_TRUE(std::ranges::equal(a.data(x), b.data(y))) << x.name;
  }
}

class GgufWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  std::vector<std::string> FilesInFolder() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  // A writer that declares all of `file` and the same tensors.
  static GgufWriter Copy(const GgufFile& file) {
    GgufWriter writer;
    for (const GgufEntry& entry : file.metadata()) {
      EXPECT_TRUE(writer.SetRaw(entry.key, entry.value));
    }
    for (const TensorInfo& tensor : file.tensors()) {
      EXPECT_TRUE(
          writer.AddTensor(tensor.name, tensor.dtype, std::span(tensor.dims).first(tensor.rank)));
    }
    return writer;
  }
  static std::vector<std::byte> Zeros(size_t count) { return std::vector<std::byte>(count); }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / "gguf_writer_test";
  const std::filesystem::path path_ = folder_ / "model.gguf";
};

TEST_F(GgufWriterTest, WhatIsWrittenIsReadBack) {
  const GgufBytes bytes = SmallValidGguf();
  const auto source = GgufFile::Parse(bytes.bytes());
  ASSERT_TRUE(source);
  auto output = Copy(*source).Begin(path_);
  ASSERT_TRUE(output) << output.error().ToString();
  for (const TensorInfo& tensor : source->tensors()) {
    const auto data = source->data(tensor);
    // The data is appended in unequal pieces.
    ASSERT_TRUE(output->Append(data.first(7)));
    ASSERT_TRUE(output->Append(data.subspan(7)));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_TRUE(output->Finish());
  const auto copy = GgufFile::Open(path_);
  ASSERT_TRUE(copy) << copy.error().ToString();
  ExpectEqualContent(*source, *copy);
  EXPECT_THAT(FilesInFolder(), ElementsAre("model.gguf"));
}

TEST_F(GgufWriterTest, EveryTypeOfMetadata) {
  GgufWriter writer;
  ASSERT_TRUE(writer.Set("u8", uint8_t{200}));
  ASSERT_TRUE(writer.Set("i64", int64_t{-1} << 40));
  ASSERT_TRUE(writer.Set("f32", 1.5f));
  ASSERT_TRUE(writer.Set("f64", 0.25));
  ASSERT_TRUE(writer.Set("bool", true));
  ASSERT_TRUE(writer.Set("text", "gemma"));
  ASSERT_TRUE(writer.SetArray("floats", std::span<const float>(std::array{0.5f, 2.0f})));
  ASSERT_TRUE(writer.SetArray("bools", std::span<const bool>(std::array{true, false})));
  ASSERT_TRUE(writer.SetStrings("strings", std::vector<std::string>{"a", "", "ccc"}));
  const auto header = writer.EncodeHeader();
  ASSERT_TRUE(header);
  const auto file = GgufFile::Parse(*header);
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->GetU32("u8").value(), 200u);
  EXPECT_EQ(IntegerAt<int64_t>(*file->Find("i64"), 0), int64_t{-1} << 40);
  EXPECT_EQ(file->GetF32("f32").value(), 1.5f);
  EXPECT_EQ(file->Find("f64")->type, GgufType::kF64);
  EXPECT_TRUE(file->GetBool("bool").value());
  EXPECT_EQ(file->GetString("text").value(), "gemma");
  EXPECT_EQ(file->GetF32Array("floats").value()[1], 2.0f);
  EXPECT_THAT(file->GetBoolPerLayer("bools", 2).value(), ElementsAre(true, false));
  const auto strings = file->GetStrings("strings").value();
  EXPECT_THAT(std::vector<std::string_view>(strings.begin(), strings.end()),
              ElementsAre("a", "", "ccc"));
}

TEST_F(GgufWriterTest, SettingAgainReplacesInPlaceAndRemoveRemoves) {
  GgufWriter writer;
  ASSERT_TRUE(writer.Set("a", uint32_t{1}));
  ASSERT_TRUE(writer.Set("b", uint32_t{2}));
  ASSERT_TRUE(writer.Set("c", uint32_t{3}));
  ASSERT_TRUE(writer.Set("b", "two"));
  writer.Remove("a");
  writer.Remove("never there");
  ASSERT_TRUE(writer.Set("c", uint32_t{4}));
  const auto header = writer.EncodeHeader();
  const auto file = GgufFile::Parse(header.value());
  ASSERT_TRUE(file) << file.error().ToString();
  ASSERT_EQ(file->metadata().size(), 2u);
  EXPECT_EQ(file->metadata()[0].key, "b");
  EXPECT_EQ(file->GetString("b").value(), "two");
  EXPECT_EQ(file->GetU32("c").value(), 4u);
}

TEST_F(GgufWriterTest, AlignmentIsKept) {
  GgufWriter writer;
  ASSERT_TRUE(writer.Set("general.alignment", uint32_t{4096}));
  ASSERT_TRUE(writer.AddTensor("a", DType::kF32, std::array<uint64_t, 1>{1}));
  ASSERT_TRUE(writer.AddTensor("b", DType::kF32, std::array<uint64_t, 1>{1}));
  auto output = writer.Begin(path_);
  ASSERT_TRUE(output->Append(Zeros(4)));
  ASSERT_TRUE(output->Append(Zeros(4)));
  ASSERT_TRUE(output->Finish());
  const auto file = GgufFile::Open(path_);
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(file->FindTensor("a")->offset, 4096u);
  EXPECT_EQ(file->FindTensor("b")->offset, 8192u);
  EXPECT_EQ(file->bytes().size(), 12288u);
}

TEST_F(GgufWriterTest, InvalidDeclarationsAreRefused) {
  GgufWriter writer;
  const auto add = [&](std::string_view name, DType dtype, std::vector<uint64_t> dims) {
    const Status status = writer.AddTensor(name, dtype, dims);
    return status ? std::string("ok") : status.error().id;
  };
  EXPECT_EQ(add("x", DType::kQ8_0, {32, 2}), "ok");
  EXPECT_EQ(add("x", DType::kF32, {1}), "gguf.write_tensor");
  EXPECT_EQ(add("", DType::kF32, {1}), "gguf.write_tensor");
  EXPECT_EQ(add(std::string(65, 'n'), DType::kF32, {1}), "gguf.write_tensor");
  EXPECT_EQ(add("a", DType::kF32, {}), "gguf.write_tensor");
  EXPECT_EQ(add("a", DType::kF32, {1, 1, 1, 1, 1}), "gguf.write_tensor");
  EXPECT_EQ(add("a", DType::kF32, {4, 0}), "gguf.write_tensor");
  EXPECT_EQ(add("a", DType::kF32, {uint64_t{1} << 40, uint64_t{1} << 40}), "gguf.write_tensor");
  EXPECT_EQ(add("a", DType::kQ8_0, {33}), "gguf.write_tensor");
  EXPECT_EQ(writer.Set("", true).error().id, "gguf.write_key");
  EXPECT_EQ(writer.Set("a\xff", true).error().id, "gguf.write_key");
  EXPECT_EQ(writer.Set(std::string(65536, 'k'), true).error().id, "gguf.write_key");
  EXPECT_EQ(writer.Set("general.alignment", uint32_t{3}).error().id, "gguf.write_key");
  EXPECT_EQ(writer.Set("general.alignment", "32").error().id, "gguf.write_key");
}

TEST_F(GgufWriterTest, DataMustBeCompleteAndInOrder) {
  GgufWriter writer;
  ASSERT_TRUE(writer.AddTensor("a", DType::kF32, std::array<uint64_t, 1>{2}));
  ASSERT_TRUE(writer.AddTensor("b", DType::kF32, std::array<uint64_t, 1>{1}));
  auto output = writer.Begin(path_);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->Append(Zeros(12)).error().id, "gguf.write_order");  // reaches into b
  ASSERT_TRUE(output->Append(Zeros(8)));
  const Status early = output->Finish();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().id, "gguf.write_order");
  EXPECT_THAT(early.error().message, HasSubstr("'b' has 0 of 4 bytes"));
  ASSERT_TRUE(output->Append(Zeros(4)));
  EXPECT_EQ(output->Append(Zeros(1)).error().id, "gguf.write_order");
  EXPECT_TRUE(output->Finish());
}

TEST_F(GgufWriterTest, AnUnfinishedFileLeavesNothingAndKeepsTheOldOne) {
  std::ofstream(path_) << "old";
  {
    GgufWriter writer;
    ASSERT_TRUE(writer.AddTensor("a", DType::kF32, std::array<uint64_t, 1>{2}));
    auto output = writer.Begin(path_);
    ASSERT_TRUE(output);
  }
  EXPECT_THAT(FilesInFolder(), ElementsAre("model.gguf"));
  EXPECT_EQ(std::filesystem::file_size(path_), 3u);
}

TEST_F(GgufWriterTest, PiecesLargerThanTheBuffer) {
  constexpr uint64_t kFloats = 1 << 20;
  GgufWriter writer;
  ASSERT_TRUE(writer.AddTensor("a", DType::kF32, std::array{kFloats}));
  std::vector<std::byte> data(kFloats * 4);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31 >> 3);
  auto output = writer.Begin(path_);
  const std::span<const std::byte> all(data);
  ASSERT_TRUE(output->Append(all.first(1000)));
  ASSERT_TRUE(output->Append(all.subspan(1000, 3 << 20)));
  ASSERT_TRUE(output->Append(all.subspan(1000 + (3 << 20))));
  ASSERT_TRUE(output->Finish());
  const auto file = GgufFile::Open(path_);
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_TRUE(std::ranges::equal(file->data(file->tensors()[0]), all));
}

TEST_F(GgufWriterTest, IoErrorsAreNamed) {
  const GgufWriter writer;
  const auto missing = writer.Begin(folder_ / "no_such_folder" / "x.gguf");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().id, "io.open");
  EXPECT_EQ(missing.error().kind, ErrorKind::kIo);
  // A device that is always full stands in for a full disk.
  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  const Status status = WriteFully(full, Zeros(10), "model.gguf");
  ::close(full);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "io.disk_full");
  EXPECT_EQ(status.error().kind, ErrorKind::kIo);
  EXPECT_THAT(status.error().message, HasSubstr("model.gguf"));
  EXPECT_EQ(WriteFully(-1, Zeros(10), "x").error().id, "io.write");
}

}  // namespace
}  // namespace rullama

#include "core/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ranges>

#include "core/gguf/gguf_test_bytes.h"

namespace rullama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

static_assert(std::ranges::forward_range<GgufStrings>);

class GgufTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = GgufFile::Parse(bytes_.bytes());
    ASSERT_TRUE(file) << file.error().ToString();
    file_.emplace(*std::move(file));
  }
  GgufBytes bytes_ = SmallValidGguf();
  std::optional<GgufFile> file_;
};

TEST_F(GgufTest, ReadsBothVersions) {
  EXPECT_EQ(file_->version(), 3u);
  const GgufBytes old = SmallValidGguf(2);
  const auto file = GgufFile::Parse(old.bytes());
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(file->version(), 2u);
  EXPECT_EQ(file->metadata().size(), file_->metadata().size());
}

TEST_F(GgufTest, IntegersOfAnyWidthAreAcceptedWhereTheyFit) {
  EXPECT_EQ(file_->GetU32("t.u8").value(), 200u);
  EXPECT_EQ(file_->GetU32("t.u16").value(), 60000u);
  EXPECT_EQ(file_->GetU64("t.u64").value(), uint64_t{1} << 63);
  const auto negative = file_->GetU32("t.i8");
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().id, "gguf.key_type");
  EXPECT_EQ(negative.error().kind, ErrorKind::kModelFile);
  EXPECT_THAT(negative.error().message, HasSubstr("'t.i8': found i8 with value -5, expected"));
  const auto wide = file_->GetU32("t.u64");
  ASSERT_FALSE(wide);
  EXPECT_THAT(wide.error().message, HasSubstr("u64 with value 9223372036854775808"));
}

TEST_F(GgufTest, ScalarsOfOtherTypes) {
  EXPECT_EQ(file_->GetF32("t.f32").value(), 1.5f);
  EXPECT_EQ(file_->GetF32("t.f64").value(), 0.25f);
  EXPECT_TRUE(file_->GetBool("t.bool").value());
  EXPECT_EQ(file_->GetString("general.architecture").value(), "gemma4");
  EXPECT_EQ(file_->GetU32("t.f32").error().id, "gguf.key_type");
  EXPECT_EQ(file_->GetF32("t.u8").error().id, "gguf.key_type");
  EXPECT_EQ(file_->GetBool("t.u8").error().id, "gguf.key_type");
  EXPECT_EQ(file_->GetString("t.u8").error().id, "gguf.key_type");
}

TEST_F(GgufTest, FloatBeyondTheRangeOfF32IsRefused) {
  const GgufBytes bytes = GgufBytes().Header(0, 1).Entry("x", 1e300);
  const auto file = GgufFile::Parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(file->GetF32("x").error().id, "gguf.key_type");
}

TEST_F(GgufTest, MissingKeys) {
  EXPECT_EQ(file_->GetU32("none").error().id, "gguf.key_missing");
  EXPECT_EQ(file_->GetStrings("none").error().id, "gguf.key_missing");
  EXPECT_EQ(file_->GetU32PerLayer("none", 3).error().id, "gguf.key_missing");
  EXPECT_EQ(file_->FindU32("none").value(), std::nullopt);
  EXPECT_THAT(file_->FindU32("t.u8").value(), Optional(200u));
  // A key that may be absent must still have the right type.
  EXPECT_EQ(file_->FindString("t.u8").error().id, "gguf.key_type");
  EXPECT_FALSE(file_->Has("none"));
  EXPECT_TRUE(file_->Has("t.bool"));
}

TEST_F(GgufTest, StringArraysAreViewsIntoTheFile) {
  const auto strings = file_->GetStrings("a.strings").value();
  EXPECT_EQ(strings.size(), 3u);
  EXPECT_THAT(std::vector<std::string_view>(strings.begin(), strings.end()),
              ElementsAre("<pad>", "", "\xe2\x96\x81the"));
  const auto* first = reinterpret_cast<const std::byte*>((*strings.begin()).data());
  EXPECT_GE(first, bytes_.bytes().data());
  EXPECT_LT(first, bytes_.bytes().data() + bytes_.size());
  EXPECT_TRUE(file_->GetStrings("a.empty").value().empty());
  EXPECT_EQ(file_->GetStrings("a.i32").error().id, "gguf.key_type");
  EXPECT_THAT(file_->GetStrings("a.i32").error().message, HasSubstr("found array of 3 i32"));
}

TEST_F(GgufTest, NumberArrays) {
  const auto floats = file_->GetF32Array("a.f32").value();
  ASSERT_EQ(floats.size(), 2u);
  EXPECT_EQ(floats[1], -1.0f);
  EXPECT_THAT(file_->GetI32Array("a.i32").value(), ElementsAre(1, 2, 3));
  EXPECT_EQ(file_->GetI32Array("a.f32").error().id, "gguf.key_type");
  EXPECT_EQ(file_->GetI32Array("a.strings").error().id, "gguf.key_type");
  EXPECT_EQ(file_->GetI32Array("t.u8").error().id, "gguf.key_type");
  EXPECT_EQ(file_->GetF32Array("a.i32").error().id, "gguf.key_type");
}

TEST_F(GgufTest, PerLayerValuesComeFromScalarsAndArrays) {
  EXPECT_THAT(file_->GetU32PerLayer("t.u8", 2).value(), ElementsAre(200u, 200u));
  EXPECT_THAT(file_->GetU32PerLayer("a.i32", 3).value(), ElementsAre(1u, 2u, 3u));
  EXPECT_EQ(file_->GetU32PerLayer("a.i32", 4).error().id, "model.array_length");
  EXPECT_THAT(file_->GetU32PerLayer("a.i32", 4).error().message,
              HasSubstr("found an array of 3 values, expected 4"));
  EXPECT_EQ(file_->GetU32PerLayer("t.i32", 2).error().id, "gguf.key_type");
  EXPECT_EQ(file_->GetU32PerLayer("a.f32", 2).error().id, "gguf.key_type");
  EXPECT_THAT(file_->GetBoolPerLayer("a.bool", 3).value(), ElementsAre(true, false, true));
  EXPECT_THAT(file_->GetBoolPerLayer("t.bool", 2).value(), ElementsAre(true, true));
  EXPECT_EQ(file_->GetBoolPerLayer("a.bool", 2).error().id, "model.array_length");
  EXPECT_EQ(file_->GetBoolPerLayer("a.i32", 3).error().id, "gguf.key_type");
}

TEST_F(GgufTest, TensorsHaveShapeAndData) {
  ASSERT_EQ(file_->tensors().size(), 2u);
  const TensorInfo* embedding = file_->FindTensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype, DType::kF32);
  EXPECT_EQ(embedding->rank, 2u);
  EXPECT_THAT(embedding->dims, ElementsAre(4u, 2u, 1u, 1u));
  EXPECT_EQ(embedding->elements(), 8u);
  EXPECT_EQ(embedding->bytes, 32u);
  EXPECT_EQ(embedding->offset, file_->data_offset());
  const TensorInfo* query = file_->FindTensor("blk.0.attn_q.weight");
  ASSERT_NE(query, nullptr);
  EXPECT_EQ(query->dtype, DType::kQ8_0);
  const auto data = file_->data(*query);
  ASSERT_EQ(data.size(), 34u);
  EXPECT_EQ(data.data() + data.size(), bytes_.bytes().data() + bytes_.size());
  EXPECT_EQ(file_->FindTensor("token_embd"), nullptr);
}

TEST_F(GgufTest, AlignmentOfTheFileIsUsed) {
  GgufBytes bytes;
  bytes.Header(1, 1).Entry("general.alignment", uint32_t{256}).Tensor("x", {1}, 0, 0).PadTo(256);
  bytes.Data(4);
  const auto file = GgufFile::Parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().ToString();
  EXPECT_EQ(file->alignment(), 256u);
  EXPECT_EQ(file->tensors()[0].offset, 256u);
}

TEST_F(GgufTest, MergedSplitFilesAreWhole) {
  const GgufBytes bytes =
      GgufBytes().Header(0, 2).Entry("split.count", uint16_t{0}).Entry("split.no", uint16_t{0});
  EXPECT_TRUE(GgufFile::Parse(bytes.bytes()));
}

TEST_F(GgufTest, OpenedFilesKeepTheirViewsWhenMovedAndNoticeChanges) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "gguf_test_open.gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes_.bytes().data()),
             static_cast<std::streamsize>(bytes_.size()));
  auto opened = GgufFile::Open(path);
  ASSERT_TRUE(opened) << opened.error().ToString();
  const auto text = opened->GetString("general.architecture").value();
  const GgufFile moved = *std::move(opened);
  EXPECT_EQ(text, "gemma4");
  EXPECT_EQ(moved.GetString("general.architecture").value().data(), text.data());
  EXPECT_EQ(moved.path(), path.string());
  EXPECT_TRUE(moved.CheckUnchanged());
  std::filesystem::resize_file(path, 100);
  const Status changed = moved.CheckUnchanged();
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().id, "io.mapped_file_changed");
}

}  // namespace
}  // namespace rullama

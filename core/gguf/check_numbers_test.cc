#include "core/gguf/check_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/gguf/gguf_test_bytes.h"

namespace rullama {
namespace {

TEST(CheckNumbersTest, CountsWhatNoModelHas) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, -3, std::nanf(""), kInfinity, -kInfinity, 2e4F, -5, 0};
  GgufBytes bytes;
  bytes.Header(2, 0).Tensor("bad", {8}, 0, 0).Tensor("good", {2}, 0, 32).PadTo(32);
  for (const float value : values) bytes.Put(value);
  bytes.Put(1e4F).Put(-2.0F);
  const auto file = GgufFile::Parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().ToString();
  const auto bad = NumbersOf(*file, *file->FindTensor("bad"));
  ASSERT_TRUE(bad);
  EXPECT_FALSE(bad->usual());
  EXPECT_EQ(bad->nan, 1u);
  EXPECT_EQ(bad->infinite, 2u);
  EXPECT_EQ(bad->too_large, 1u);
  EXPECT_EQ(bad->largest, 2e4F);
  EXPECT_EQ(bad->first, 2u);
  const auto good = NumbersOf(*file, *file->FindTensor("good"));
  ASSERT_TRUE(good);
  EXPECT_TRUE(good->usual());
  EXPECT_EQ(good->largest, 1e4F);
}

// A q8_0 block whose f16 scale is NaN.
TEST(CheckNumbersTest, DecodesBlocks) {
  GgufBytes bytes;
  bytes.Header(1, 0).Tensor("w", {64}, 8, 0).PadTo(32).Put(uint16_t{0x3C00});
  for (int i = 0; i < 32; ++i) bytes.Put(int8_t{3});
  bytes.Put(uint16_t{0x7E00});
  for (int i = 0; i < 32; ++i) bytes.Put(int8_t{1});
  const auto file = GgufFile::Parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().ToString();
  const auto numbers = NumbersOf(*file, file->tensors()[0]);
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->nan, 32u);
  EXPECT_EQ(numbers->first, 32u);
  EXPECT_EQ(numbers->largest, 3.0F);
}

TEST(CheckNumbersTest, TypesThatAreNotDecodedAreNamed) {
  GgufBytes bytes;
  bytes.Header(1, 0).Tensor("w", {128}, 41, 0).PadTo(32).Data(18);
  const auto file = GgufFile::Parse(bytes.bytes());
  ASSERT_TRUE(file) << file.error().ToString();
  const auto numbers = NumbersOf(*file, file->tensors()[0]);
  ASSERT_FALSE(numbers);
  EXPECT_EQ(numbers.error().id, "gguf.type");
}

}  // namespace
}  // namespace rullama

#include "core/gguf/dequantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/half.h>

#include <array>
#include <cstring>

#include "core/gguf/quant_vectors_test_util.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> BytesOf(const auto& container) {
  return std::as_bytes(std::span(container));
}

TEST(DequantizeTest, EqualsTheReferenceBitForBit) {
  EXPECT_EQ(CompareWithQuantVectors(RULLAMA_SOURCE_DIR "/tests/data/quant"), 25u * 512u);
}

TEST(DequantizeTest, EveryHalfEqualsTheSdkConversion) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  ASSERT_TRUE(Dequantize(DType::kF16, BytesOf(halves), values));
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(HalfToFloat(halves[i])))
        << i;
  }
}

TEST(DequantizeTest, PlainTypes) {
  std::array<float, 2> out{};
  ASSERT_TRUE(Dequantize(DType::kF32, BytesOf(std::array{1.5f, -0.0f}), out));
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_TRUE(std::signbit(out[1]));
  ASSERT_TRUE(Dequantize(DType::kF64, BytesOf(std::array{0.1, -2.0}), out));
  EXPECT_EQ(out[0], 0.1f);
  ASSERT_TRUE(Dequantize(DType::kI8, BytesOf(std::array<int8_t, 2>{-128, 127}), out));
  EXPECT_EQ(out[0], -128.0f);
  ASSERT_TRUE(Dequantize(DType::kI16, BytesOf(std::array<int16_t, 2>{-300, 7}), out));
  EXPECT_EQ(out[0], -300.0f);
  ASSERT_TRUE(Dequantize(DType::kI32, BytesOf(std::array<int32_t, 2>{1 << 24, -3}), out));
  EXPECT_EQ(out[0], 16777216.0f);
  ASSERT_TRUE(Dequantize(DType::kI64, BytesOf(std::array<int64_t, 2>{int64_t{1} << 40, -3}), out));
  EXPECT_EQ(out[0], 0x1p40f);
  EXPECT_EQ(out[1], -3.0f);
}

// Worked by hand: codes 0 to 15 are the E2M1 numbers 0 0.5 1 1.5 2 3 4 6 and their negatives.
TEST(DequantizeTest, Nvfp4) {
  std::array<uint8_t, 36> block{};
  block[0] = 0x38;          // exponent 7 - bias 7, mantissa 0: scale 1
  block[1] = 0x3C;          // mantissa 4 / 8: scale 1.5
  block[2] = 0x01;          // subnormal: scale 2^-9
  block[3] = 0x7F;          // scale 0
  block[4] = 0xF2;          // sub-block 0: element 0 is code 2, element 8 is code 15
  block[4 + 8 + 7] = 0x49;  // sub-block 1: element 7 is code 9, element 15 is code 4
  block[4 + 16] = 0x07;     // sub-block 2: element 0 is code 7
  block[4 + 24] = 0x77;     // sub-block 3: scaled to zero
  std::array<float, 64> out{};
  ASSERT_TRUE(Dequantize(DType::kNVFP4, BytesOf(block), out));
  std::array<float, 64> expected{};
  expected[0] = 1.0f;
  expected[8] = -6.0f;
  expected[16 + 7] = -0.75f;
  expected[16 + 15] = 3.0f;
  expected[32] = 6.0f * 0x1p-9f;
  EXPECT_EQ(out, expected);
}

TEST(DequantizeTest, Mxfp4ScalesReachIntoSubnormals) {
  std::array<uint8_t, 17> block{};
  std::array<float, 32> out{};
  block[1] = 0x02;  // E2M1 code 2 is 1.0
  for (const auto& [e, expected] : {std::pair<uint8_t, float>{127, 1.0f},
                                    {0, 0x1p-127f},
                                    {1, 0x1p-126f},
                                    {2, 0x1p-125f},
                                    {254, 0x1p127f}}) {
    block[0] = e;
    ASSERT_TRUE(Dequantize(DType::kMXFP4, BytesOf(block), out));
    EXPECT_EQ(out[0], expected) << int{e};
  }
}

TEST(DequantizeTest, UnalignedBlocksAreRead) {
  std::array<uint8_t, 35> bytes{};
  bytes[2] = 0x3C;  // d = 1.0 at offset 1
  bytes[3] = 5;
  std::array<float, 32> out{};
  ASSERT_TRUE(Dequantize(DType::kQ8_0, BytesOf(bytes).subspan(1), out));
  EXPECT_EQ(out[0], 5.0f);
}

TEST(DequantizeTest, TypesWithoutADecoderAreRefusedWithTheList) {
  EXPECT_TRUE(CanDequantize(DType::kQ4_K));
  EXPECT_FALSE(CanDequantize(DType::kQ8_K));
  std::array<std::byte, 292> block{};
  std::array<float, 256> out{};
  const Status status = Dequantize(DType::kQ8_K, block, out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "gguf.type");
  EXPECT_EQ(status.error().kind, ErrorKind::kModelFile);
  EXPECT_THAT(status.error().message, HasSubstr("q8_k"));
  EXPECT_THAT(status.error().message, HasSubstr("q4_k q5_k q6_k iq2_xxs"));
}

TEST(DequantizeTest, SpansMustBelongTogether) {
  std::array<std::byte, 34> block{};
  std::array<float, 64> out{};
  const std::span<float> all(out);
  EXPECT_EQ(Dequantize(DType::kQ8_0, block, all).error().id, "gguf.dequantize_size");
  EXPECT_EQ(Dequantize(DType::kQ8_0, block, all.first(31)).error().id, "gguf.dequantize_size");
  EXPECT_EQ(Dequantize(DType::kQ8_0, {}, all.first(32)).error().id, "gguf.dequantize_size");
  EXPECT_TRUE(Dequantize(DType::kQ8_0, block, all.first(32)));
  EXPECT_TRUE(Dequantize(DType::kQ8_0, {}, {}));
}

}  // namespace
}  // namespace rullama

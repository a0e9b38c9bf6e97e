#include <gtest/gtest.h>
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/dequantize.h>

#include <array>
#include <cmath>
#include <limits>

namespace rullama::sdk {
namespace {

using Values = std::array<float, kCacheBlock>;

// -1.6, -1.5, ..., 1.5
Values Ramp() {
  Values values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 10 - 1.6f;
  return values;
}

// The codes that gguf-py's quantize_blocks() gives for the same values.
TEST(CacheRows, HasTheBytesOfGgml) {
  const Values values = Ramp();
  BlockQ8_0 q8;
  QuantizeBlock(values.data(), q8);
  EXPECT_EQ(q8.d, 0x2273);
  constexpr std::array<int, kCacheBlock> kCodes = {
      -127, -119, -111, -103, -95, -87, -79, -71, -64, -56, -48, -40, -32, -24, -16, -8,
      0,    8,    16,   24,   32,  40,  48,  56,  64,  71,  79,  87,  95,  103, 111, 119};
  for (size_t i = 0; i < kCodes.size(); ++i) EXPECT_EQ(q8.qs[i], kCodes[i]) << i;
  BlockQ4_0 q4;
  QuantizeBlock(values.data(), q4);
  EXPECT_EQ(q4.d, 0x3266);
  constexpr std::array<int, kCacheBlock / 2> kPairs = {0x80, 0x91, 0x91, 0xA2, 0xA2, 0xB3,
                                                       0xB3, 0xC4, 0xC4, 0xD5, 0xD5, 0xE6,
                                                       0xE6, 0xF6, 0xF7, 0xF8};
  for (size_t i = 0; i < kPairs.size(); ++i) EXPECT_EQ(q4.qs[i], kPairs[i]) << i;
}

TEST(CacheRows, TiesRoundAwayFromZeroInQ8) {
  Values values{};
  values[0] = 127;
  values[1] = 2.5f;
  values[2] = -2.5f;
  values[3] = 0.49999997f;
  BlockQ8_0 block;
  QuantizeBlock(values.data(), block);
  EXPECT_EQ(block.qs[1], 3);
  EXPECT_EQ(block.qs[2], -3);
  EXPECT_EQ(block.qs[3], 0);
}

// A cache is read, written to a snapshot and read again.
TEST(CacheRows, DecodedValuesKeepTheirBytes) {
  Values values = Ramp();
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    for (int run = 0; run < 1000; ++run) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(run * 37) + static_cast<float>(i * i));
      }
      std::array<std::byte, sizeof(BlockQ8_0)> first{}, second{};
      QuantizeCacheRow(dtype, values.data(), values.size(), first.data());
      FindDequantizer(dtype)(first.data(), 1, values.data());
      QuantizeCacheRow(dtype, values.data(), values.size(), second.data());
      ASSERT_EQ(first, second) << NameOf(dtype) << ", run " << run;
    }
  }
}

TEST(CacheRows, TinyBlocksAreZero) {
  for (const float tiny : {0.0f, std::numeric_limits<float>::denorm_min(), 1e-9f}) {
    Values values{};
    values[7] = tiny;
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
      std::array<std::byte, sizeof(BlockQ8_0)> block{};
      Values decoded;
      QuantizeCacheRow(dtype, values.data(), values.size(), block.data());
      FindDequantizer(dtype)(block.data(), 1, decoded.data());
      for (const float value : decoded) EXPECT_EQ(value, 0);
    }
  }
}

TEST(CacheRows, AValueThatIsNotFiniteIsNotLost) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Values values = Ramp();
    values[20] = bad;
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
      std::array<std::byte, sizeof(BlockQ8_0)> block{};
      Values decoded;
      QuantizeCacheRow(dtype, values.data(), values.size(), block.data());
      FindDequantizer(dtype)(block.data(), 1, decoded.data());
      EXPECT_TRUE(std::isnan(decoded[20]));
    }
  }
}

}  // namespace
}  // namespace rullama::sdk

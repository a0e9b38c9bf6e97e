#include "core/gguf/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/gguf/dequantize.h"

namespace rullama {
namespace {

constexpr size_t kCount = 1024;

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> blocks(RowBytes(dtype, values.size()));
  const Status status = Quantize(dtype, values, blocks);
  EXPECT_TRUE(status) << status.error().ToString();
  std::vector<float> back(values.size());
  EXPECT_TRUE(Dequantize(dtype, blocks, back));
  return back;
}

// A bell-shaped sum of uniform numbers from a small generator, with standard deviation `scale`.
std::vector<float> Weights(float scale) {
  std::vector<float> values(kCount);
  uint32_t state = 12345;
  for (float& value : values) {
    float sum = 0;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525u + 1013904223u;
      sum += static_cast<float>(state >> 8) * 0x1p-24f;
    }
    value = (sum - 6) * scale;
  }
  return values;
}

double RelativeError(const std::vector<float>& values, const std::vector<float>& back) {
  double error = 0;
  double square = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(values[i]) - static_cast<double>(back[i]);
    error += difference * difference;
    square += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return std::sqrt(error / square);
}

struct Case {
  DType dtype;
  double relative_error;  // of normal numbers, at most
  double constant_error;  // of a constant, relative
};

class QuantizeTest : public ::testing::TestWithParam<Case> {};

// A step s of uniform codes gives an error of s / sqrt(12): with n bits over about +-2.2 deviations
// that is 4.4 / 2^n / sqrt(12) for blocks of 32.
TEST_P(QuantizeTest, NormalNumbersComeBackAtAnyScale) {
  for (const float scale : {0.01f, 1.0f, 1000.0f}) {
    const auto values = Weights(scale);
    EXPECT_LT(RelativeError(values, RoundTrip(GetParam().dtype, values)), GetParam().relative_error)
        << scale;
  }
}

TEST_P(QuantizeTest, ZerosStayZero) {
  for (const float zero : {0.0f, -0.0f}) {
    const auto back = RoundTrip(GetParam().dtype, std::vector<float>(kCount, zero));
    EXPECT_TRUE(std::ranges::all_of(back, [](float value) { return value == 0; }));
  }
}

TEST_P(QuantizeTest, ConstantsComeBack) {
  for (const float constant : {0.5f, -0.5f, 3.3f, -60000.0f, 65504.0f}) {
    const auto values = std::vector<float>(kCount, constant);
    EXPECT_LT(RelativeError(values, RoundTrip(GetParam().dtype, values)), GetParam().constant_error)
        << constant;
  }
}

TEST_P(QuantizeTest, ValuesBelowTheGridOfF16AreZeroOrNear) {
  for (const float tiny : {1e-45f, 1e-40f, 1e-30f, 1e-9f}) {
    for (const float value : RoundTrip(GetParam().dtype, Weights(tiny))) {
      ASSERT_TRUE(std::isfinite(value)) << tiny;
      ASSERT_LE(std::fabs(value), 0x1p-20f) << tiny;
    }
  }
}

TEST_P(QuantizeTest, AnOutlierCostsItsOwnBlockOnly) {
  auto values = Weights(0.02f);
  const auto plain = RoundTrip(GetParam().dtype, values);
  values[700] = -60000.0f;
  const auto back = RoundTrip(GetParam().dtype, values);
  EXPECT_NEAR(back[700], -60000.0f, 60000 * std::max(GetParam().constant_error, 1e-2));
  const size_t block = InfoOf(GetParam().dtype).block_elements;
  for (size_t i = 0; i < kCount; ++i) {
    if (i / block != 700 / block) {
      ASSERT_EQ(back[i], plain[i]) << i;
    }
  }
}

TEST_P(QuantizeTest, WhatIsNotFiniteIsNamed) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    auto values = Weights(1.0f);
    values[300] = bad;
    std::vector<std::byte> blocks(RowBytes(GetParam().dtype, kCount));
    const Status status = Quantize(GetParam().dtype, values, blocks);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().id, "gguf.quantize_value");
    EXPECT_NE(status.error().message.find("element 300 "), std::string::npos)
        << status.error().message;
  }
}

// The weighted error of the values that `weights` favour.
double WeightedError(const std::vector<float>& values, const std::vector<float>& weights,
                     DType dtype, const std::vector<std::byte>& blocks) {
  std::vector<float> back(values.size());
  EXPECT_TRUE(Dequantize(dtype, blocks, back));
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(values[i]) - static_cast<double>(back[i]);
    error += static_cast<double>(weights[i]) * difference * difference;
  }
  return error;
}

TEST_P(QuantizeTest, ImportanceLowersTheWeightedError) {
  const DType dtype = GetParam().dtype;
  const auto values = Weights(0.02f);
  std::vector<std::byte> plain(RowBytes(dtype, kCount)), equal(plain), weighted(plain);
  ASSERT_TRUE(Quantize(dtype, values, plain));
  // The same for all columns changes nothing, and neither does none at all.
  for (const float same : {0.0f, 7.0f}) {
    ASSERT_TRUE(Quantize(dtype, values, equal, 0, std::vector<float>(kCount, same)));
    EXPECT_EQ(equal, plain) << same;
  }
  std::vector<float> weights(kCount);
  for (size_t i = 0; i < kCount; ++i) weights[i] = i % 5 == 0 ? 40.0f : 0.5f;
  ASSERT_TRUE(Quantize(dtype, values, weighted, 0, weights));
  const double before = WeightedError(values, weights, dtype, plain);
  const double after = WeightedError(values, weights, dtype, weighted);
  EXPECT_LE(after, before);
  const bool fits_scales = IsBlockType(dtype) && dtype != DType::kQ8_0;
  if (fits_scales) {
    EXPECT_LT(after, 0.99 * before);
  }
  EXPECT_EQ(Quantize(dtype, values, weighted, 0, std::span(weights).first(8)).error().id,
            "gguf.quantize_size");
}

TEST_P(QuantizeTest, TheNumberOfBytesIsChecked) {
  const auto values = Weights(1.0f);
  std::vector<std::byte> blocks(RowBytes(GetParam().dtype, kCount) - 1);
  const Status status = Quantize(GetParam().dtype, values, blocks);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "gguf.quantize_size");
}

INSTANTIATE_TEST_SUITE_P(
    Types, QuantizeTest,
    ::testing::Values(Case{DType::kF16, 5e-4, 5e-4}, Case{DType::kBF16, 4e-3, 4e-3},
                      Case{DType::kQ4_0, 0.095, 1e-3}, Case{DType::kQ4_1, 0.08, 1e-3},
                      Case{DType::kQ5_0, 0.048, 1e-3}, Case{DType::kQ5_1, 0.04, 1e-3},
                      Case{DType::kQ8_0, 0.006, 1e-3}, Case{DType::kQ4_K, 0.085, 1e-3},
                      Case{DType::kQ5_K, 0.042, 1e-3}, Case{DType::kQ6_K, 0.021, 1e-3},
                      Case{DType::kQ2_K, 0.31, 1e-3}, Case{DType::kQ3_K, 0.2, 1e-3},
                      Case{DType::kIQ4_NL, 0.095, 1e-3}, Case{DType::kIQ4_XS, 0.098, 1e-3},
                      // The largest distance from a point: from 5 to 4 or 6.
                      Case{DType::kMXFP4, 0.14, 0.2}),
    [](const auto& row) { return std::string(NameOf(row.param.dtype)); });

TEST(Quantize, ValuesOnTheGridOfABlockAreExact) {
  std::vector<float> values(256);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.25f * (static_cast<float>(i % 16) - 8);
  }
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1}) {
    EXPECT_EQ(RoundTrip(dtype, values), values) << NameOf(dtype);
  }
}

TEST(Quantize, ValuesBeyondF16AreNamedUnlessTheTypeHoldsThem) {
  std::vector<float> values(256, 1.0f);
  values[17] = 1e6f;
  std::vector<std::byte> blocks(RowBytes(DType::kQ4_K, values.size()));
  const Status status = Quantize(DType::kQ4_K, values, blocks);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("element 17 "), std::string::npos);
  EXPECT_NEAR(RoundTrip(DType::kBF16, values)[17], 1e6f, 4e3f);
  EXPECT_EQ(RoundTrip(DType::kF32, values), values);
  values[17] = std::numeric_limits<float>::max();  // rounds to infinity in bf16
  std::vector<std::byte> halves(RowBytes(DType::kBF16, values.size()));
  EXPECT_FALSE(Quantize(DType::kBF16, values, halves));
}

TEST(Quantize, OtherTypesAreRefused) {
  const std::vector<float> values(256);
  std::vector<std::byte> blocks(RowBytes(DType::kIQ2_S, values.size()));
  EXPECT_FALSE(CanQuantize(DType::kIQ2_S));
  const Status status = Quantize(DType::kIQ2_S, values, blocks);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "gguf.quantize_type");
  EXPECT_NE(status.error().message.find("q4_k"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace rullama

#include "core/diff/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace rullama {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CompareValuesTest, EqualAndOff) {
  const std::vector<float> b = {3, 4, 0};
  const ValueError same = CompareValues(b, b);
  EXPECT_EQ(same.nmse, 0);
  EXPECT_EQ(same.max_error, 0);
  EXPECT_DOUBLE_EQ(same.cosine, 1);
  const ValueError off = CompareValues(std::vector<float>{3, 4, 1}, b);
  EXPECT_DOUBLE_EQ(off.nmse, 1.0 / 25);
  EXPECT_DOUBLE_EQ(off.max_error, 1);
  EXPECT_NEAR(off.cosine, 5 / std::sqrt(26.0), 1e-12);
  EXPECT_DOUBLE_EQ(CompareValues(std::vector<float>{-3, -4, 0}, b).cosine, -1);
}

TEST(CompareValuesTest, ZerosAndInfinities) {
  const std::vector<float> zeros = {0, 0};
  EXPECT_EQ(CompareValues(zeros, zeros).nmse, 0);
  EXPECT_EQ(CompareValues(std::vector<float>{0, 1}, zeros).nmse, kInf);
  const std::vector<float> banned = {1, -kInf};
  EXPECT_EQ(CompareValues(banned, banned).nmse, 0);
  EXPECT_EQ(CompareValues(std::vector<float>{1, kInf}, banned).not_finite, 1);
  EXPECT_EQ(CompareValues(std::vector<float>{1, NAN}, std::vector<float>{1, 2}).nmse, kInf);
}

TEST(CompareLogitsTest, DivergenceAndBestToken) {
  const auto ln = [](double p) { return static_cast<float>(std::log(p)); };
  const std::vector<float> b = {ln(0.5), ln(0.5), ln(0.9), ln(0.1)};
  EXPECT_NEAR(CompareLogits(b, b, 2).mean_kl, 0, 1e-12);
  EXPECT_EQ(CompareLogits(b, b, 2).top1, 1);
  // A constant added to a row changes nothing.
  const std::vector<float> shifted = {ln(0.5) + 3, ln(0.5) + 3, ln(0.9) - 1, ln(0.1) - 1};
  EXPECT_NEAR(CompareLogits(shifted, b, 2).max_kl, 0, 1e-7);
  const std::vector<float> swapped = {ln(0.5), ln(0.5), ln(0.1), ln(0.9)};
  const LogitsError error = CompareLogits(swapped, b, 2);
  EXPECT_NEAR(error.max_kl, 0.8 * std::log(9.0), 1e-6);
  EXPECT_NEAR(error.mean_kl, 0.4 * std::log(9.0), 1e-6);
  EXPECT_EQ(error.top1, 0.5);
}

TEST(CompareLogitsTest, WhatIsNoDistributionIsNotTheSame) {
  const std::vector<float> sane = {1, 2};
  for (const std::vector<float>& broken :
       {std::vector<float>{NAN, 2}, {1, NAN}, {1, kInf}, {-kInf, -kInf}}) {
    EXPECT_EQ(CompareLogits(sane, broken, 2).mean_kl, kInf);
    EXPECT_EQ(CompareLogits(broken, sane, 2).mean_kl, kInf);
  }
  // A banned token does not count as an infinity.
  const std::vector<float> banned = {1, -kInf};
  EXPECT_EQ(CompareLogits(banned, banned, 2).mean_kl, 0);
}

}  // namespace
}  // namespace rullama

#include "cli/eval/divergence.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace rullama::cli {
namespace {

// A row whose steps are these numbers, each worth `step`, above `lowest`.
struct Row {
  Row(float step, float lowest, const std::vector<uint16_t>& numbers)
      : bytes(numbers.size() * sizeof(uint16_t)) {
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    row = {.step = step, .lowest = lowest, .steps = bytes};
  }
  std::vector<std::byte> bytes;
  LogProbRow row;
};

TEST(Divergence, ADistributionIsAtNoDistanceFromItself) {
  const std::vector<float> logits = {1, 0, 0, 0};
  const double sum = std::exp(1) + 3;
  const Row base(1, static_cast<float>(-std::log(sum)), {1, 0, 0, 0});
  Divergence divergence;
  divergence.Add(logits, base.row, 0);
  const DivergenceReport report = divergence.Report();
  EXPECT_EQ(report.tokens, 1);
  EXPECT_NEAR(report.kl.value, 0, 1e-6);
  EXPECT_NEAR(report.nll.value, std::log(sum) - 1, 1e-6);
  EXPECT_NEAR(report.log_ratio.value, 0, 1e-6);
  EXPECT_NEAR(report.shift_rms, 0, 1e-6);
  EXPECT_EQ(report.same_best.value, 1);
}

TEST(Divergence, IsTheSumOfItsDefinition) {
  // The base gives 3/4 and 1/4, the model 1/2 and 1/2.
  const Row base(static_cast<float>(std::log(3)), static_cast<float>(std::log(0.25)), {1, 0});
  Divergence divergence;
  for (const int32_t next : {0, 1}) divergence.Add(std::vector<float>{0, 0}, base.row, next);
  const DivergenceReport report = divergence.Report();
  EXPECT_NEAR(report.kl.value, 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-6);
  EXPECT_NEAR(report.nll.value, std::log(2), 1e-6);
  EXPECT_NEAR(report.base_nll.value, -(std::log(0.75) + std::log(0.25)) / 2, 1e-6);
  EXPECT_NEAR(report.shift_rms, 0.25, 1e-6);
  EXPECT_EQ(report.same_best.value, 1) << "of equal tokens the first one is the best";
}

TEST(Divergence, NothingIsNoDivergence) { EXPECT_EQ(Divergence().Report().tokens, 0); }

}  // namespace
}  // namespace rullama::cli

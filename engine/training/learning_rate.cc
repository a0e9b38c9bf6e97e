#include "engine/training/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rullama {
namespace {

constexpr double kWarmupPart = 0.03;  // of the steps, unless the configuration says

}  // namespace

double LearningRate::At(int64_t step) const {
  if (step < warmup) {
    return highest * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  if (schedule == LearningSchedule::kConstant || warmup >= steps) return highest;
  const double q = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  const double rest =
      schedule == LearningSchedule::kLinear ? 1 - q : (1 + std::cos(std::numbers::pi * q)) / 2;
  return lowest + (highest - lowest) * rest;
}

LearningRate LearningRateOf(const TrainingConfig& config, int64_t steps) {
  const auto part = static_cast<int64_t>(std::ceil(kWarmupPart * static_cast<double>(steps)));
  return {.schedule = config.schedule,
          .steps = steps,
          .warmup = std::min(config.warmup_steps.value_or(part), steps),
          .highest = config.learning_rate,
          .lowest = config.min_learning_rate};
}

}  // namespace rullama

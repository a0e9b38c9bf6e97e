// The learning rate of each optimizer step. Pure functions.
#pragma once

#include <cstdint>

#include "core/config/config.h"

namespace rullama {

struct LearningRate {
  LearningSchedule schedule = LearningSchedule::kConstant;
  int64_t steps = 1;   // of the whole run
  int64_t warmup = 0;  // of them, in which the rate rises
  double highest = 0;
  double lowest = 0;  // at the end; not used by a constant rate

  // The rate of step 0, 1, ..., steps - 1. In the warm-up it rises from highest / warmup to
  // highest; then, with q from 0 towards 1, it is lowest + (highest - lowest) f(q), where f is 1
  // (constant), 1 - q (linear) or (1 + cos(pi q)) / 2 (cosine).
  [[nodiscard]] double At(int64_t step) const;
};

// The rates that a configuration asks for in a run of `steps`.
LearningRate LearningRateOf(const TrainingConfig& config, int64_t steps);

}  // namespace rullama

// The ranges of sampler settings. The schema of the configuration and the checks of the samplers
// read this one table, so that a value the configuration accepts is not refused later, and the
// other way round (for `top_k` and `logit_bias`: as far as the vocabulary of the model allows).
#pragma once

#include "core/config/range.h"

namespace rullama::sampler_ranges {

inline constexpr RealRange kTemperature{0, 100};
inline constexpr RealRange kTopP{0, 1, /*above_min=*/true};
inline constexpr RealRange kMinP{0, 1};
inline constexpr RealRange kTypicalP{0, 1, /*above_min=*/true};
inline constexpr RealRange kRepeatPenalty{0.01, 100};  // it divides
inline constexpr IntegerRange kRepeatLastN{-1, int64_t{1} << 24};
inline constexpr RealRange kAdditivePenalty{-2, 2};  // the range of the OpenAI interface
inline constexpr RealRange kLogitBias{-100, 100};    // the same; -infinity bans a token

// Settings of block diffusion.
inline constexpr IntegerRange kMaxSteps{1, 1'000'000};
inline constexpr RealRange kCanvasTemperature{0, 100, /*above_min=*/true};
inline constexpr RealRange kEntropy{0, 1e9};  // nats; more than any canvas has
inline constexpr IntegerRange kStabilityThreshold{0, 1'000'000};

}  // namespace rullama::sampler_ranges

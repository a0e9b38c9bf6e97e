// The ranges of sampler settings that are not in sampler_settings.def. The schema of the
// configuration and the checks of the samplers both use them, so that they accept the same values
// (for `top_k` and `logit_bias`: as far as the vocabulary of the model allows).
#pragma once

#include "core/config/range.h"

namespace rullama::sampler_ranges {

// The range of the OpenAI interface; -infinity bans a token.
inline constexpr RealRange kLogitBias{-100, 100};

// Settings of block diffusion.
inline constexpr IntegerRange kMaxSteps{1, 1'000'000};
inline constexpr RealRange kCanvasTemperature{0, 100, /*above_min=*/true};
inline constexpr RealRange kEntropy{0, 1e9};  // nats; more than any canvas has
inline constexpr IntegerRange kStabilityThreshold{0, 1'000'000};

}  // namespace rullama::sampler_ranges

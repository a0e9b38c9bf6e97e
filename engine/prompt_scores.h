// What the logits of a row say about the token that follows it in a prompt.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "engine/api/request.h"

namespace rullama {

// The scores of a prompt's tokens after the first, which the answers to it share.
using PromptScores = std::shared_ptr<const std::vector<PromptLogprob>>;

// The log-probability of a token and its rank, and the `top` best ones. Of equal logits the lower
// id comes first. Error backend.nan (kRuntime) for logits that are not numbers.
Result<PromptLogprob> ScoreToken(std::span<const float> logits, int32_t token, int32_t top);

}  // namespace rullama

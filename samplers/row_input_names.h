// The inputs of row chains, all of R rows. Internal to samplers.
#pragma once

#include <cstdint>
#include <string_view>

namespace rullama::row_inputs {

inline constexpr std::string_view kSettings = "sampler.rows.settings";    // f32, see row_sample
inline constexpr std::string_view kPath = "sampler.rows.path";            // i32[R], see Path
inline constexpr std::string_view kMask = "sampler.rows.mask";            // i32, see token_mask
inline constexpr std::string_view kBiasIds = "sampler.rows.bias_ids";     // i32, see row_bias
inline constexpr std::string_view kBias = "sampler.rows.bias";            // f32, see row_bias
inline constexpr std::string_view kPenalties = "sampler.rows.penalties";  // f32, row_penalties

// Columns of these inputs and of kDrawKeyInput.
inline constexpr int64_t kDrawSettings = 5;
inline constexpr int64_t kPenaltySettings = 4;
inline constexpr int64_t kKeyWords = 3;

// The tokens from which the full chain draws a row.
enum class Path : int32_t {
  kFew,     // from the best tokens
  kSorted,  // from all tokens by descending logit
  kAll,     // from all tokens by ascending id
};

}  // namespace rullama::row_inputs

// The inputs of the draw, all of R rows; that of the key is kDrawKeyInput. Internal to samplers.
#pragma once

#include <cstdint>
#include <string_view>

namespace rullama::samplers {

inline constexpr std::string_view kDrawSettingsInput =
    "sampler.rows.settings";                                         // f32, see row_sample
inline constexpr std::string_view kPathInput = "sampler.rows.path";  // i32[R], see DrawPath

// Columns of kDrawSettingsInput and of kDrawKeyInput.
inline constexpr int64_t kDrawSettings = 5;
inline constexpr int64_t kKeyWords = 3;

// The tokens from which the full chain draws a row.
enum class DrawPath : int32_t {
  kFew,     // from the best tokens
  kSorted,  // from all tokens by descending logit
  kAll,     // from all tokens by ascending id
};

}  // namespace rullama::samplers

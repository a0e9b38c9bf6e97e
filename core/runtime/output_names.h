// The names of the outputs of graphs that predict tokens.
#pragma once

#include <string_view>

namespace rullama::output_names {

inline constexpr std::string_view kToken = "token";           // i32 [R]: the sampled token
inline constexpr std::string_view kLogitsSum = "logits_sum";  // f32 [R, 1]: NaN if any logit is
inline constexpr std::string_view kLogits = "logits";         // f32 [R or T, vocabulary]

}  // namespace rullama::output_names

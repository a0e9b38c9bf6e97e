// Names of the values of graphs that make one vector of a whole text. The graph over the text's
// rows has media_names::kLastSeen in addition to the inputs of every language model (input_names),
// of which `past` means nothing to it.
#pragma once

#include <string_view>

namespace rullama::encoder_names {

// Output f32[T, width] of the graph over a text's rows.
inline constexpr std::string_view kHidden = "hidden";

// The graph that follows the mean of these rows.
inline constexpr std::string_view kMean = "encoder.mean";            // input f32[T, width]
inline constexpr std::string_view kEmbedding = "encoder.embedding";  // output f32[T, embedding]

}  // namespace rullama::encoder_names

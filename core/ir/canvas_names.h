// Names of the values that a graph which denoises a canvas has in addition to the inputs of every
// language model (input_names). Rows are the tokens of one canvas; T is its length.
#pragma once

#include <string_view>

namespace rullama::canvas_names {

// Inputs.
inline constexpr std::string_view kRow = "canvas.row";  // i32[T]: 0 to T - 1
inline constexpr std::string_view kInverseTemperature = "canvas.inverse_temperature";  // f32[1]
inline constexpr std::string_view kUniforms = "canvas.uniforms";                       // f32[T]
inline constexpr std::string_view kNoise = "canvas.noise";                             // i32[T]
inline constexpr std::string_view kLogits = "canvas.logits";  // f32[T, vocabulary]: of a step that
                                                              // was made elsewhere
// State f32[canvas length, 1, width]: the embedding expected after the last step, not scaled. Zero
// before the first step of a canvas.
inline constexpr std::string_view kSoftEmbedding = "canvas.soft_embedding";

// Outputs.
inline constexpr std::string_view kBest = "canvas.best";          // i32[T]: the likeliest token
inline constexpr std::string_view kSampled = "canvas.sampled";    // i32[T]: the token drawn
inline constexpr std::string_view kEntropy = "canvas.entropy";    // f32[T]: nats
inline constexpr std::string_view kAccepted = "canvas.accepted";  // f32[T]: 1 or 0
inline constexpr std::string_view kNext = "canvas.next";          // i32[T]: sampled or noise

}  // namespace rullama::canvas_names

// Names of the values by which a model and its assistant (models/common/assistant.h) work together.
//
// The model's graphs keep what their last norm gives for wanted rows, each in a place of its own. A
// draft starts from the place of the row whose token was drawn last.
#pragma once

#include <string_view>

namespace rullama::draft_names {

// State f32[places, 1, width of the model]. It is not part of a sequence.
inline constexpr std::string_view kHidden = "draft.hidden";
// Input of the model's graphs, i32[R]: the place of each wanted row.
inline constexpr std::string_view kPlace = "draft.place";

// Inputs of the assistant's graph, in addition to those of every language model. A row is a slot
// that drafts, its token the newest, which has no row yet, and its position that of this token.
inline constexpr std::string_view kFrom = "draft.from";    // i32[T]: the place it starts from
inline constexpr std::string_view kAfter = "draft.after";  // i32[T]: the position after its own
// Output, i32[T, n]: the tokens that are guessed to follow.
inline constexpr std::string_view kTokens = "draft.tokens";
// Output, f32[T, n]: how likely the assistant takes each of them to be. Of graphs that are asked
// for it.
inline constexpr std::string_view kProbabilities = "draft.probabilities";

}  // namespace rullama::draft_names

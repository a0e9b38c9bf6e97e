// Answers of Gemma 4 as grammars: an optional thought, then text of a form, or calls of tools in
// the model's own syntax:
//
//   <|tool_call>call:NAME{key:value,...}<tool_call|>
//
// Keys are bare, strings stand between <|"|>, and the rest is as in JSON without white space.
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string_view>

#include "core/base/status.h"
#include "models/common/answer_form.h"

namespace rullama::gemma4 {

// The markers that these grammars name, in the order of their symbols.
[[nodiscard]] std::span<const std::string_view> AnswerMarkers();

// Errors (kUsage): schema.invalid, schema.unsupported, schema.too_large, which name the place.
Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form);

}  // namespace rullama::gemma4

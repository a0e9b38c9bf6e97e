// Answers of Gemma 3 as grammars: text of a form; of FunctionGemma calls, too, in its own syntax:
//
//   <start_function_call>call:NAME{key:value,...}<end_function_call>
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string_view>

#include "core/base/status.h"
#include "models/common/answer_form.h"

namespace rullama::gemma3 {

// Errors (kUsage): schema.invalid, schema.unsupported (also for tools, which the family does not
// have), schema.too_large, which name the place.
Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form);

// The markers of FunctionGemma's grammars, in the order of their symbols.
[[nodiscard]] std::span<const std::string_view> FunctionMarkers();
// Errors (kUsage): as MakeCallGrammar.
Result<AnswerGrammar> MakeFunctionGrammar(const AnswerForm& form);

}  // namespace rullama::gemma3

// Answers of Gemma 3 as grammars: text of a form. Thread safety: pure functions.
#pragma once

#include "core/base/status.h"
#include "models/common/answer_form.h"

namespace rullama::gemma3 {

// Errors (kUsage): schema.invalid, schema.unsupported (also for tools, which the family does not
// have), schema.too_large, which name the place.
Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form);

}  // namespace rullama::gemma3

// The rule of an answer's text, which all families make in the same way. Thread safety: a pure
// function.
#pragma once

#include "core/base/status.h"
#include "core/constraint/schema_compiler.h"
#include "models/common/answer_form.h"

namespace rullama {

// The rule of the text of a form that has one (AnswerForm::has_text). `values` adds to `builder`.
// Errors (kUsage): schema.invalid, schema.unsupported, schema.too_large.
Result<constraint::RuleId> AddAnswerText(constraint::GrammarBuilder& builder,
                                         constraint::SchemaCompiler& values,
                                         const AnswerForm& form);

}  // namespace rullama

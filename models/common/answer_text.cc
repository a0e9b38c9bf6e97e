#include "models/common/answer_text.h"

#include "core/constraint/plain_text.h"

namespace rullama {

Result<constraint::RuleId> AddAnswerText(constraint::GrammarBuilder& builder,
                                         constraint::SchemaCompiler& values,
                                         const AnswerForm& form) {
  if (form.schema != nullptr) return values.Add(*form.schema, "schema");
  if (!form.pattern.empty()) return constraint::AddPlainPattern(builder, form.pattern);
  return constraint::AddPlainTexts(builder, form.choices);
}

}  // namespace rullama

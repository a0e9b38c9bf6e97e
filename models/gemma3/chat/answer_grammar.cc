#include "models/gemma3/chat/answer_grammar.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/constraint/schema_compiler.h"
#include "models/common/answer_text.h"

namespace rullama::gemma3 {

Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& form) {
  if (!form.has_text() || form.tool_use == ToolUse::kRequired) {
    return MakeError(ErrorKind::kUsage, "schema.unsupported",
                     "tools: Gemma 3 was not trained to call tools; leave them out");
  }
  constraint::GrammarBuilder builder;
  constraint::SchemaCompiler values(builder, {});
  const constraint::RuleId root = builder.AddRule();
  const constraint::StateId start = builder.AddState();
  builder.SetStart(root, start);
  RL_ASSIGN_OR_RETURN(const constraint::RuleId text, AddAnswerText(builder, values, form));
  builder.AddEpsilon(start, builder.AddCall(text, builder.AddAccept()));
  auto grammar = std::make_shared<const constraint::Grammar>(std::move(builder).Finish(root));
  RL_RETURN_IF_ERROR(values.Check(*grammar));
  return AnswerGrammar{std::move(grammar), {values.ignored().begin(), values.ignored().end()}, {}};
}

}  // namespace rullama::gemma3

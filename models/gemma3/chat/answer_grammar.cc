#include "models/gemma3/chat/answer_grammar.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/constraint/schema_compiler.h"
#include "models/common/answer_text.h"
#include "models/common/call_grammar.h"
#include "models/gemma3/chat/function_markers.h"

namespace rullama::gemma3 {
namespace {

constexpr auto kFunctionMarkers = std::to_array<std::string_view>({kCallBegin, kCallEnd, kEscape});

bool IsFunctionName(std::string_view name) {
  return !name.empty() && IsNameStart(name.front()) && std::ranges::all_of(name, IsNamePart);
}

constexpr CallSyntax kFunctionSyntax = {
    .markers = kFunctionMarkers,
    .call_begin = kCallBegin,
    .call_end = kCallEnd,
    .quote = kEscape,
    .thought_begin = {},
    .thought_end = {},
    .is_name = IsFunctionName,
    .name_form = "letters, digits, _, - and ., and begin with a letter or _"};

}  // namespace

std::span<const std::string_view> FunctionMarkers() { return kFunctionMarkers; }

Result<AnswerGrammar> MakeFunctionGrammar(const AnswerForm& form) {
  return MakeCallGrammar(kFunctionSyntax, form);
}

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

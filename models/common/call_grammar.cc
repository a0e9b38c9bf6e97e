#include "models/common/call_grammar.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/base/printable.h"
#include "core/constraint/schema_compiler.h"
#include "models/common/answer_text.h"

namespace rullama {
namespace {

using constraint::GrammarBuilder;
using constraint::RuleId;
using constraint::StateId;
using constraint::Symbol;

const constraint::Json& MemberOf(const constraint::Json& value, const char* key) {
  static const constraint::Json kNull;
  const auto found = value.find(key);
  return found == value.end() ? kNull : *found;
}

Symbol SymbolOf(const CallSyntax& syntax, std::string_view marker) {
  const auto found = std::ranges::find(syntax.markers, marker);
  return static_cast<Symbol>(constraint::kFirstMarker + (found - syntax.markers.begin()));
}

constraint::ValueSyntax ValuesOf(const CallSyntax& syntax) {
  return {.quote = SymbolOf(syntax, syntax.quote), .quote_text = syntax.quote, .spaces = false};
}

class AnswerGrammarBuilder {
 public:
  AnswerGrammarBuilder(const CallSyntax& syntax, const AnswerForm& form)
      : syntax_(syntax),
        form_(form),
        values_(builder_, {}),
        arguments_(builder_, ValuesOf(syntax)) {}

  Result<AnswerGrammar> Build() {
    const RuleId root = builder_.AddRule();
    const StateId start = builder_.AddState();
    builder_.SetStart(root, start);
    accept_ = builder_.AddAccept();
    const bool free = !form_.has_text() && form_.tool_use != ToolUse::kRequired;
    const StateId answer = builder_.AddState();
    if (free) {
      AddFreeText(answer);
      builder_.AddEpsilon(start, answer);
    } else {
      AddThought(start, answer);
    }
    if (form_.tool_use != ToolUse::kNone && !form_.tools.empty()) {
      RL_RETURN_IF_ERROR(AddCalls(answer));
    }
    if (form_.has_text() && form_.tool_use != ToolUse::kRequired) {
      RL_ASSIGN_OR_RETURN(const RuleId text, AddAnswerText(builder_, values_, form_));
      builder_.AddEpsilon(answer, builder_.AddCall(text, accept_));
    }
    auto grammar = std::make_shared<const constraint::Grammar>(std::move(builder_).Finish(root));
    RL_RETURN_IF_ERROR(values_.Check(*grammar));
    RL_RETURN_IF_ERROR(arguments_.Check(*grammar));
    std::vector<std::string> ignored(values_.ignored().begin(), values_.ignored().end());
    std::ranges::set_difference(arguments_.ignored(), values_.ignored(),
                                std::back_inserter(ignored));
    const auto& unenforced = arguments_.unenforced();
    return AnswerGrammar{
        std::move(grammar), std::move(ignored), {unenforced.begin(), unenforced.end()}};
  }

 private:
  // Anything but the beginning of a call, and thoughts.
  void AddFreeText(StateId state) {
    builder_.AddEdge(state, 0, 0xFF, state);
    builder_.AddEdge(state, constraint::kOtherSpecial, state);
    for (const std::string_view marker : syntax_.markers) {
      if (marker != syntax_.call_begin) builder_.AddEdge(state, Of(marker), state);
    }
    builder_.AddEpsilon(state, accept_);
  }

  // A thought that may be before the answer, or that the prompt has begun.
  void AddThought(StateId from, StateId to) {
    if (syntax_.thought_begin.empty()) return builder_.AddEpsilon(from, to);
    const StateId inside = builder_.AddState();
    if (form_.opens_thought) {
      builder_.AddEpsilon(from, inside);
    } else {
      builder_.AddEpsilon(from, to);
      if (form_.thinking) builder_.AddEdge(from, Of(syntax_.thought_begin), inside);
    }
    builder_.AddEdge(inside, 0, 0xFF, inside);
    builder_.AddEdge(inside, Of(syntax_.thought_end), to);
  }

  Status AddCalls(StateId from) {
    const StateId begin = builder_.AddState();
    builder_.AddEdge(from, Of(syntax_.call_begin), begin);
    const StateId name = builder_.AddText(begin, "call:");
    const StateId end = builder_.AddState();
    for (const AnswerForm::Tool& tool : form_.tools) {
      RL_RETURN_IF_ERROR(AddCall(tool, name, end));
    }
    const StateId after = builder_.AddState();
    builder_.AddEdge(end, Of(syntax_.call_end), after);
    builder_.AddEpsilon(after, accept_);
    if (form_.parallel_calls) builder_.AddEdge(after, Of(syntax_.call_begin), begin);
    return OkStatus();
  }

  Status AddCall(const AnswerForm::Tool& tool, StateId from, StateId to) {
    const constraint::Json& function = MemberOf(*tool.json, "function");
    const auto name = MemberOf(function, "name").get<std::string>();
    if (!syntax_.is_name(name)) {
      return MakeError(ErrorKind::kUsage, "schema.unsupported",
                       "{}.function.name: '{}' cannot be written in a call; use {}", tool.path,
                       ShownName(name), syntax_.name_form);
    }
    const StateId after = builder_.AddText(from, name);
    const constraint::Json& parameters = MemberOf(function, "parameters");
    if (parameters.is_null() || parameters == constraint::Json::object()) {
      builder_.AddEpsilon(builder_.AddText(after, "{}"), to);
      return OkStatus();
    }
    const bool strict = MemberOf(function, "strict") == true;
    RL_ASSIGN_OR_RETURN(const RuleId value,
                        arguments_.AddObject(parameters, tool.path + ".function.parameters",
                                             strict ? constraint::Strictness::kStrict
                                                    : constraint::Strictness::kLenient));
    builder_.AddEpsilon(after, builder_.AddCall(value, to));
    return OkStatus();
  }

  [[nodiscard]] Symbol Of(std::string_view marker) const { return SymbolOf(syntax_, marker); }

  const CallSyntax& syntax_;
  const AnswerForm& form_;
  GrammarBuilder builder_;
  constraint::SchemaCompiler values_;
  constraint::SchemaCompiler arguments_;
  StateId accept_ = 0;
};

}  // namespace

Result<AnswerGrammar> MakeCallGrammar(const CallSyntax& syntax, const AnswerForm& form) {
  return AnswerGrammarBuilder(syntax, form).Build();
}

}  // namespace rullama

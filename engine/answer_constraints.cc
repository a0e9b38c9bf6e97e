#include "engine/answer_constraints.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/printable.h"

namespace rullama {
namespace {

using constraint::Json;

bool MayCall(const Request& request) {
  return !request.tools.empty() && request.tool_choice != ToolChoice::kNone;
}

// Whether the text of the answer has a form.
bool HasTextForm(const Request& request) {
  return !request.json_schema.empty() || !request.pattern.empty() || !request.choices.empty();
}

// Whether any answer will do.
bool IsFree(const Request& request) {
  return !HasTextForm(request) && request.tools.empty() &&
         request.tool_choice != ToolChoice::kRequired;
}

ToolUse ToolUseOf(const Request& request) {
  switch (request.tool_choice) {
    case ToolChoice::kNone:
      return ToolUse::kNone;
    case ToolChoice::kRequired:
      return ToolUse::kRequired;
    case ToolChoice::kAuto:
      break;
  }
  return ToolUse::kAuto;
}

// Everything that a grammar depends on.
std::string FormKey(const Request& request, bool thinking, bool opens_thought) {
  std::string key =
      fmt::format("{} {} {} {} {}\n", static_cast<int>(request.tool_choice),
                  request.parallel_tool_calls, thinking, opens_thought, request.choices.size());
  const auto add = [&key](const std::string& text) {
    key += fmt::format("{} {}", text.size(), text);
  };
  for (const auto* text : {&request.json_schema, &request.pattern, &request.tools}) add(*text);
  for (const std::string& choice : request.choices) add(choice);
  for (const std::string& name : request.allowed_tools) add(name);
  return key;
}

Status CheckForm(const Request& request) {
  const int forms = static_cast<int>(!request.json_schema.empty()) +
                    static_cast<int>(!request.pattern.empty()) +
                    static_cast<int>(!request.choices.empty());
  if (forms > 1) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "a request has {} of `json_schema`, `pattern` and `choices`, expected one at "
                     "most",
                     forms);
  }
  const bool chooses =
      request.tool_choice == ToolChoice::kRequired || !request.allowed_tools.empty();
  if (chooses && request.tools.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "`tool_choice` and `allowed_tools` need `tools`, which the request does not "
                     "have");
  }
  return OkStatus();
}

// The tools that may be called; those of other forms than functions were refused before.
Result<std::vector<AnswerForm::Tool>> AllowedTools(const Request& request, const Json& tools) {
  std::vector<AnswerForm::Tool> allowed;
  std::vector<std::string> missing = request.allowed_tools;
  for (size_t i = 0; tools.is_array() && i < tools.size(); ++i) {
    const std::string name = tools[i].at("function").at("name");
    std::erase(missing, name);
    const bool listed =
        std::ranges::find(request.allowed_tools, name) != request.allowed_tools.end();
    if (listed || request.allowed_tools.empty()) {
      allowed.push_back({&tools[i], fmt::format("tools[{}]", i)});
    }
  }
  if (!missing.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "`allowed_tools` names '{}', which is not in `tools`",
                     ShownName(missing.front()));
  }
  if (allowed.empty() && request.tool_choice == ToolChoice::kRequired) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "a call is required, but `tools` is empty");
  }
  return allowed;
}

}  // namespace

Result<AnswerConstraint> AnswerConstraints::Make(const Request& request, bool thinking,
                                                 bool opens_thought) {
  RL_RETURN_IF_ERROR(CheckForm(request));
  AnswerConstraint constraint;
  const bool forced = HasTextForm(request) || request.tool_choice == ToolChoice::kRequired;
  if (model_.facts().denoises()) {
    if (!forced) return constraint;
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "this model denoises canvases and predicts no next token, so its answers "
                     "cannot be held to a form or to calls");
  }
  if (IsFree(request)) return constraint;
  const std::string key = FormKey(request, thinking, opens_thought);
  const auto use = [&](const Form& form) {
    constraint.matcher.emplace(form.masks);
    constraint.ends_when_valid = forced;
    constraint.ignored = form.ignored;
    constraint.unenforced = form.unenforced;
  };
  {
    const std::lock_guard lock(mutex_);
    if (const Form* form = Find(key)) {
      use(*form);
      return constraint;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  RL_ASSIGN_OR_RETURN(Form form, Compile(request, thinking, opens_thought));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  form.key = key;
  use(form);
  const std::lock_guard lock(mutex_);
  compile_seconds_.Observe(seconds.count());
  Keep(std::move(form));
  return constraint;
}

Histogram AnswerConstraints::compile_seconds() const {
  const std::lock_guard lock(mutex_);
  return compile_seconds_;
}

Result<AnswerConstraints::Form> AnswerConstraints::Compile(const Request& request, bool thinking,
                                                           bool opens_thought) {
  AnswerForm form{.pattern = request.pattern,
                  .choices = request.choices,
                  .tool_use = ToolUseOf(request),
                  .parallel_calls = request.parallel_tool_calls,
                  .thinking = thinking,
                  .opens_thought = opens_thought};
  Json schema;
  Json tools;
  if (!request.json_schema.empty()) {
    RL_ASSIGN_OR_RETURN(schema, constraint::ParseSchemaText(request.json_schema, "schema"));
    form.schema = &schema;
  }
  if (MayCall(request)) {
    RL_ASSIGN_OR_RETURN(tools, constraint::ParseSchemaText(request.tools, "tools"));
    RL_ASSIGN_OR_RETURN(form.tools, AllowedTools(request, tools));
  }
  RL_ASSIGN_OR_RETURN(AnswerGrammar grammar, model_.model->MakeAnswerGrammar(form));
  return Form{.key = {},
              .masks = std::make_shared<constraint::MaskTable>(std::move(grammar.grammar), Trie()),
              .ignored = std::move(grammar.ignored),
              .unenforced = std::move(grammar.unenforced)};
}

std::shared_ptr<const constraint::TokenTrie> AnswerConstraints::Trie() {
  const std::lock_guard lock(mutex_);
  if (!trie_) {
    trie_ = constraint::TokenTrie::Build(*model_.tokenizer, model_.model->AnswerMarkers(),
                                         model_.facts().vocabulary);
  }
  return trie_;
}

const AnswerConstraints::Form* AnswerConstraints::Find(const std::string& key) {
  const auto found = std::ranges::find(forms_, key, &Form::key);
  if (found == forms_.end()) return nullptr;
  forms_.splice(forms_.begin(), forms_, found);
  return &forms_.front();
}

void AnswerConstraints::Keep(Form form) {
  if (Find(form.key) == nullptr) forms_.push_front(std::move(form));
  size_t bytes = 0;
  size_t count = 0;
  auto at = forms_.begin();
  for (; at != forms_.end() && count < kMaxForms; ++at, ++count) {
    bytes += at->masks->bytes() + at->masks->grammar()->bytes() + at->key.size();
    if (bytes > kMaxBytes && count > 0) break;
  }
  forms_.erase(at, forms_.end());
}

}  // namespace rullama

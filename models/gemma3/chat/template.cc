#include "models/gemma3/chat/template.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/common/chat/json.h"
#include "models/common/chat/trim.h"
#include "models/common/chat/validate.h"
#include "models/gemma3/chat/function_template.h"
#include "models/gemma3/chat/translation.h"

namespace rullama::gemma3 {
namespace {

using chat::ChatPrompt;
using chat::ErrorAt;
using chat::IsAssistant;
using chat::IsSystem;
using chat::IsTruthy;
using chat::Member;
using chat::PromptWriter;
using chat::RoleOf;
using chat::Text;
using Json = nlohmann::json;

// Checks the template's demands beyond the form of a message.
Status CheckDemands(const Json& messages, bool is_example) {
  bool has_turn = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const std::string path = fmt::format("messages[{}]", i);
    if (RoleOf(message) == "tool" || IsTruthy(Member(message, "tool_calls"))) {
      return ErrorAt(path, "chat.tools", "calls of tools, which Gemma 3 was not trained for");
    }
    RL_RETURN_IF_ERROR(CheckParts(Member(message, "content"), is_example, path));
    has_turn = has_turn || !IsSystem(RoleOf(message));
  }
  if (has_turn) return OkStatus();
  return ErrorAt("messages", "chat.messages",
                 "found a system message alone, expected a user's too");
}

// Messages of one side that follow one another: turns alternate in what the model was trained on.
struct Turn {
  bool is_model = false;
  std::vector<size_t> messages = {};
};

class Renderer {
 public:
  Renderer(const Json& messages, const ChatOptions& options)
      : messages_(messages), options_(options) {
    size_t i = 0;
    for (; i < messages.size() && IsSystem(RoleOf(messages[i])); ++i) system_.push_back(i);
    // A system message between turns is read by the model as a user's.
    for (; i < messages.size(); ++i) {
      const bool is_model = IsAssistant(RoleOf(messages[i]));
      if (turns_.empty() || turns_.back().is_model != is_model) {
        turns_.push_back({.is_model = is_model});
      }
      turns_.back().messages.push_back(i);
    }
  }

  Result<ChatPrompt> Render() {
    RL_RETURN_IF_ERROR(CheckDemands(messages_, options_.trained != TrainedTurns::kNone));
    out_.Template("<bos>");
    if (options_.form == ChatForm::kContinuation) {
      Passages();
      return std::move(out_).Finish();
    }
    // In front of a greeting the system text is a turn of its own.
    if (!system_.empty() && turns_.front().is_model) {
      Begin(/*is_model=*/false);
      Contents(system_, /*trim=*/true);
      End();
    }
    for (size_t i = 0; i < turns_.size(); ++i) WriteTurn(i);
    if (options_.add_generation_prompt && !options_.continue_last) Begin(/*is_model=*/true);
    return std::move(out_).Finish();
  }

 private:
  void Begin(bool is_model) {
    out_.Template(kTurnMarkers.begin);
    out_.Template(is_model ? "model\n" : "user\n");
  }
  void End() {
    out_.Template(kTurnMarkers.end);
    out_.Template("\n");
  }

  void WriteTurn(size_t index) {
    const Turn& turn = turns_[index];
    Begin(turn.is_model);
    if (index == 0 && !turn.is_model) SystemText();
    out_.SetTrained(IsTrained(index));
    Contents(turn.messages, /*trim=*/true);
    if (options_.continue_last && index + 1 == turns_.size()) return;
    const bool ends_example = options_.trained != TrainedTurns::kNone && index + 1 == turns_.size();
    out_.Template(kTurnMarkers.end);
    out_.SetTrained(false);
    if (!ends_example) out_.Template("\n");
  }

  void Passages() {
    SystemText();
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (i > 0 && !turns_[i].is_model) out_.Template("\n");
      out_.SetTrained(IsTrained(i));
      Contents(turns_[i].messages, /*trim=*/false);
      out_.SetTrained(false);
      if (IsTrained(i)) out_.EndAnswer();
    }
  }

  void SystemText() {
    if (system_.empty()) return;
    Contents(system_, /*trim=*/false);
    out_.Template("\n\n");
  }

  // Several messages become one text, with an empty line between them.
  void Contents(const std::vector<size_t>& indices, bool trim) {
    for (const size_t index : indices) {
      if (index != indices.front()) out_.Template("\n\n");
      Content(index, trim);
    }
  }

  void Content(size_t index, bool trim) {
    const auto write = [&](std::string_view text) { out_.User(trim ? chat::Trim(text) : text); };
    const Json& content = Member(messages_[index], "content");
    if (content.is_string()) return write(Text(content));
    for (const Json& part : content) {
      IsPicture(part) ? WritePicture(out_) : write(Text(Member(part, "text")));
    }
  }

  [[nodiscard]] bool IsTrained(size_t turn) const {
    if (!turns_[turn].is_model) return false;
    const bool is_last = turn + 2 >= turns_.size();
    return options_.trained == TrainedTurns::kAll ||
           (options_.trained == TrainedTurns::kLast && is_last);
  }

  const Json& messages_;
  const ChatOptions& options_;
  std::vector<size_t> system_;  // messages before the first turn
  std::vector<Turn> turns_;
  PromptWriter out_;
};

}  // namespace

bool IsPicture(const Json& part) {
  const std::string_view type = Text(Member(part, "type"));
  return type == "image" || type == "image_url";
}

Status CheckParts(const Json& content, bool is_example, const std::string& path) {
  if (!content.is_array()) return OkStatus();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string_view type = Text(Member(content[i], "type"));
    const bool is_picture = IsPicture(content[i]);
    if (type == "text" || (is_picture && !is_example)) continue;
    return ErrorAt(fmt::format("{}.content[{}].type", path, i), "chat.content",
                   "found '{}', expected {}", type,
                   is_picture ? "text: pictures cannot be learnt from"
                              : "text or image: this model reads text and pictures");
  }
  return OkStatus();
}

void WritePicture(PromptWriter& out) {
  out.Template(kPictureMarkers.before);
  out.Template(kPictureMarkers.placeholder);
  out.Template(kPictureMarkers.after);
}

Status CheckTextParts(const Json& content, const std::string& path) {
  if (!content.is_array()) return OkStatus();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string_view type = Text(Member(content[i], "type"));
    if (type == "text") continue;
    return ErrorAt(fmt::format("{}.content[{}].type", path, i), "chat.content",
                   "found '{}', expected text: this model reads text only", type);
  }
  return OkStatus();
}

Result<ChatPrompt> Render(const Json& messages, const Json& tools, const ChatOptions& options) {
  switch (options.form) {
    case ChatForm::kFunctions:
      return RenderFunctionChat(messages, tools, options);
    case ChatForm::kTranslation:
      return RenderTranslation(messages, tools, options);
    case ChatForm::kTurns:
    case ChatForm::kContinuation:
      break;
  }
  return RenderChat(messages, tools, options);
}

Result<ChatPrompt> RenderChat(const Json& messages, const Json& tools, const ChatOptions& options) {
  RL_RETURN_IF_ERROR(chat::CheckMessages(messages));
  if (IsTruthy(tools)) {
    return ErrorAt("tools", "chat.tools",
                   "found tools, which Gemma 3 was not trained for; leave them out");
  }
  if (options.continue_last) RL_RETURN_IF_ERROR(chat::CheckContinuesLast(messages));
  return Renderer(messages, options).Render();
}

std::string JinjaTemplate() {
  return R"(<bos>
{%- set ns = namespace(system='', begun=false, answers=false, text='') -%}
{%- for message in messages -%}
{%- set answers = message['role'] in ['assistant', 'model'] -%}
{%- set ns.text = message['content'] -%}
{%- if message['content'] is not string -%}
{%- set ns.text = message['content'] | map(attribute='text') | join -%}
{%- endif -%}
{%- if not ns.begun and message['role'] in ['system', 'developer'] -%}
{%- set ns.system = ns.system + ns.text + '\n\n' -%}
{%- else -%}
{%- if ns.begun and answers == ns.answers -%}
{{- '\n\n' -}}
{%- else -%}
{%- if ns.begun -%}{{- '<end_of_turn>\n' -}}{%- endif -%}
{%- if not ns.begun and answers and ns.system -%}
{{- '<start_of_turn>user\n' + ns.system | trim + '<end_of_turn>\n' -}}
{%- endif -%}
{{- '<start_of_turn>' + ('model' if answers else 'user') + '\n' -}}
{%- if not ns.begun and not answers -%}{{- ns.system -}}{%- endif -%}
{%- endif -%}
{{- ns.text | trim -}}
{%- set ns.begun = true -%}
{%- set ns.answers = answers -%}
{%- endif -%}
{%- endfor -%}
{%- if ns.begun -%}{{- '<end_of_turn>\n' -}}{%- endif -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%})";
}

}  // namespace rullama::gemma3

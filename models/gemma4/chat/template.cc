#include "models/gemma4/chat/template.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "models/common/chat/json.h"
#include "models/common/chat/letter_case.h"
#include "models/common/chat/trim.h"
#include "models/common/chat/validate.h"
#include "models/gemma4/chat/markers.h"
#include "models/gemma4/chat/text.h"
#include "models/gemma4/chat/values.h"

namespace rullama::gemma4 {
namespace {

using chat::CallArguments;
using chat::ChatPrompt;
using chat::IsTruthy;
using chat::Member;
using chat::PromptWriter;
using chat::RoleOf;
using chat::Text;
using chat::Trim;
using Json = nlohmann::json;

// A model of at least this size counts as large: Gemma 4's 12B, 26B and 31B do, E2B and E4B do not.
constexpr uint64_t kLargeParameters = 12'000'000'000;

class Renderer {
 public:
  Renderer(const Json& messages, const Json& tools, const ChatOptions& options)
      : messages_(messages), tools_(tools), options_(options) {}

  // The messages have been checked.
  Result<ChatPrompt> Render();

 private:
  // The end of the last rendered message, as far as it decides how generation starts.
  enum class Ending { kTurn, kOpenCall, kResponse };

  Status SystemTurn();
  Status Message(size_t index);
  void Thinking(const Json& message, size_t index);
  Status Calls(const Json& message, size_t index);
  bool Responses(const Json& message, size_t index);
  void ToolResult(const Json& calls, const Json& result);
  void Response(std::string_view name, const Json& value);
  bool Content(const Json& message);
  void EndTurn(bool is_last);
  void EmptyThought();
  [[nodiscard]] bool is_example() const { return options_.trained != TrainedTurns::kNone; }
  void Media(const Json& parts);
  void Video(const Json& seconds);
  void GenerationPrompt();

  const Json& messages_;
  const Json& tools_;
  const ChatOptions& options_;
  PromptWriter out_;
  size_t first_ = 0;       // first message after the system turn
  size_t after_user_ = 0;  // first message after the last one of the user
  size_t last_turn_ = 0;   // first message of the model's last turn
  bool after_model_ =
      false;  // whether the previous message, results of tools aside, was the model's
  Ending ending_ = Ending::kTurn;
};

Result<ChatPrompt> Renderer::Render() {
  out_.Template(kBos);
  RL_RETURN_IF_ERROR(SystemTurn());
  after_user_ = first_;
  for (size_t i = first_; i < messages_.size(); ++i) {
    if (RoleOf(messages_[i]) == "user") after_user_ = i + 1;
  }
  for (size_t i = first_; i < messages_.size(); ++i) {
    const bool begins = i == first_ || !chat::IsAssistant(RoleOf(messages_[i - 1]));
    const bool follows_tool = i > first_ && RoleOf(messages_[i - 1]) == "tool";
    if (chat::IsAssistant(RoleOf(messages_[i])) && begins && !follows_tool) last_turn_ = i;
  }
  for (size_t i = first_; i < messages_.size(); ++i) {
    if (RoleOf(messages_[i]) != "tool") RL_RETURN_IF_ERROR(Message(i));
  }
  if (options_.add_generation_prompt && !options_.continue_last) GenerationPrompt();
  return std::move(out_).Finish();
}

Status Renderer::SystemTurn() {
  const bool has_message = chat::IsSystem(RoleOf(messages_[0]));
  const bool has_tools = IsTruthy(tools_);
  if (!options_.enable_thinking && !has_tools && !has_message) return OkStatus();
  out_.Template(kTurnBegin);
  out_.Template("system\n");
  if (options_.enable_thinking) {
    out_.Template(kThink);
    out_.Template("\n");
  }
  if (has_message) {
    const Json& content = Member(messages_[0], "content");
    if (content.is_string()) {
      out_.User(Trim(Text(content)));
    } else {
      for (const Json& part : content) {
        out_.User(Trim(Text(Member(part, "text"))));
        out_.Template(" ");
      }
    }
    first_ = 1;
  }
  for (size_t i = 0; has_tools && i < tools_.size(); ++i) {
    out_.Template(kToolBegin);
    RL_RETURN_IF_ERROR(WriteDeclaration(tools_[i], fmt::format("tools[{}]", i), out_));
    out_.Template(kToolEnd);
  }
  out_.Template(kTurnEnd);
  out_.Template("\n");
  return OkStatus();
}

Status Renderer::Message(size_t index) {
  const Json& message = messages_[index];
  const std::string_view role = RoleOf(message);
  const bool is_model = chat::IsAssistant(role);
  if (!is_model || !after_model_) {
    out_.Template(kTurnBegin);
    out_.Template(is_model ? "model" : role);
    out_.Template("\n");
  }
  after_model_ = is_model;
  const bool starts_last =
      (is_example() || options_.continue_last) && is_model && index == last_turn_;
  if (starts_last && options_.variant == ChatVariant::kLarge && !options_.enable_thinking) {
    EmptyThought();
  }
  const bool is_trained =
      is_model && (options_.trained == TrainedTurns::kAll || (is_example() && index >= last_turn_));
  out_.SetTrained(is_trained);
  Thinking(message, index);
  RL_RETURN_IF_ERROR(Calls(message, index));
  const bool has_calls = IsTruthy(Member(message, "tool_calls"));
  const bool responded = Responses(message, index);
  out_.SetTrained(is_trained);
  const bool has_content = Content(message);

  size_t next = index + 1;
  while (next < messages_.size() && RoleOf(messages_[next]) == "tool") ++next;
  const bool is_last = next == messages_.size();
  const bool continues =
      is_model && (is_last ? options_.continue_last : chat::IsAssistant(RoleOf(messages_[next])));
  ending_ = responded ? Ending::kResponse : has_calls ? Ending::kOpenCall : Ending::kTurn;
  if (has_calls && !responded) {
    out_.Template(kToolResponseBegin);  // left open: the result is to follow
  } else if (!continues && !(responded && !has_content && is_last)) {
    EndTurn(is_last);
  }
  out_.SetTrained(false);
  return OkStatus();
}

void Renderer::EndTurn(bool is_last) {
  out_.Template(kTurnEnd);
  out_.SetTrained(false);
  if (!(is_last && is_example())) out_.Template("\n");
}

void Renderer::Thinking(const Json& message, size_t index) {
  const Json& reasoning = IsTruthy(Member(message, "reasoning"))
                              ? Member(message, "reasoning")
                              : Member(message, "reasoning_content");
  const bool shown = index >= after_user_ ||
                     (options_.preserve_thinking && IsTruthy(Member(message, "tool_calls")));
  if (!IsTruthy(reasoning) || !shown || (is_example() && !options_.enable_thinking)) return;
  out_.Template(kChannelBegin);
  out_.Template(kThoughtChannel);
  out_.Template("\n");
  out_.User(Text(reasoning));
  out_.Template("\n");
  out_.Template(kChannelEnd);
}

Status Renderer::Calls(const Json& message, size_t index) {
  const Json& calls = Member(message, "tool_calls");
  for (size_t i = 0; i < calls.size(); ++i) {
    const Json& function = Member(calls[i], "function");
    RL_ASSIGN_OR_RETURN(
        const Json arguments,
        CallArguments(function, fmt::format("messages[{}].tool_calls[{}].function", index, i)));
    out_.Template(kToolCallBegin);
    out_.Template("call:");
    out_.User(Text(Member(function, "name")));
    out_.Template("{");
    WriteMembers(arguments, out_);
    out_.Template("}");
    out_.Template(kToolCallEnd);
  }
  return OkStatus();
}

// Results of the message's calls: its own, else those of the tool messages that follow. Returns
// whether there were any.
bool Renderer::Responses(const Json& message, size_t index) {
  if (const Json& own = Member(message, "tool_responses"); IsTruthy(own)) {
    for (const Json& response : own) {
      const Json& name = Member(response, "name");
      Response(IsTruthy(name) ? Text(name) : "unknown", Member(response, "response"));
    }
    return true;
  }
  const Json& calls = Member(message, "tool_calls");
  if (!IsTruthy(calls)) return false;
  size_t next = index + 1;
  for (; next < messages_.size() && RoleOf(messages_[next]) == "tool"; ++next) {
    ToolResult(calls, messages_[next]);
  }
  return next > index + 1;
}

void Renderer::ToolResult(const Json& calls, const Json& result) {
  const Json& own_name = Member(result, "name");
  std::string_view name = IsTruthy(own_name) ? Text(own_name) : "unknown";
  // As in the reference, the last call with the id counts, and a missing id matches a missing id.
  for (const Json& call : calls) {
    if (Member(call, "id") == Member(result, "tool_call_id")) {
      name = Text(Member(Member(call, "function"), "name"));
    }
  }
  const Json& content = Member(result, "content");
  if (!content.is_array()) {
    Response(name, content);
    return;
  }
  std::string text;
  for (const Json& part : content) {
    if (Text(Member(part, "type")) == "text") text += Text(Member(part, "text"));
  }
  Response(name, text);
  Media(content);
}

// The model writes the marker with which its turn stops, and learns to; the result is not its own.
void Renderer::Response(std::string_view name, const Json& value) {
  out_.Template(kToolResponseBegin);
  out_.SetTrained(false);
  out_.Template("response:");
  out_.User(name);
  out_.Template("{");
  if (value.is_object()) {
    WriteMembers(value, out_);
  } else {
    out_.Template("value:");
    WriteValue(value, KeyStyle::kBare, out_);
  }
  out_.Template("}");
  out_.Template(kToolResponseEnd);
}

// Returns whether anything but white space was written.
bool Renderer::Content(const Json& message) {
  const bool is_model = chat::IsAssistant(RoleOf(message));
  bool written = false;
  const auto write_text = [&](std::string_view text) {
    const std::string shown = is_model ? StripThinking(text) : std::string(Trim(text));
    written |= !shown.empty();
    out_.User(shown);
  };
  const Json& content = Member(message, "content");
  if (content.is_string()) {
    write_text(Text(content));
    return written;
  }
  for (const Json& part : content) {
    if (Text(Member(part, "type")) == "text") {
      write_text(Text(Member(part, "text")));
    } else {
      Media(Json::array({part}));
      written = true;
    }
  }
  return written;
}

void Renderer::Media(const Json& parts) {
  for (const Json& part : parts) {
    const std::string_view type = Text(Member(part, "type"));
    if (type == "image" || type == "image_url") out_.Template(kImage);
    if (type == "audio" || type == "input_audio") out_.Template(kAudio);
    if (type == "video") Video(Member(part, "seconds"));
  }
}

// A video is a placeholder, or its frames: the time of each before its picture.
void Renderer::Video(const Json& seconds) {
  if (!seconds.is_array()) return out_.Template(kVideo);
  std::string_view space;
  for (const Json& frame : seconds) {
    constexpr int64_t kMinute = 60;
    const auto second = static_cast<int64_t>(frame.get<double>());
    out_.Template(
        fmt::format("{}{:02}:{:02} {}", space, second / kMinute, second % kMinute, kImage));
    space = " ";
  }
}

void Renderer::GenerationPrompt() {
  const bool large = options_.variant == ChatVariant::kLarge;
  if (ending_ == Ending::kTurn) {
    out_.Template(kTurnBegin);
    out_.Template("model\n");
    if (!options_.enable_thinking && large) EmptyThought();
  } else if (ending_ == Ending::kResponse && options_.enable_thinking) {
    out_.Template(kChannelBegin);
    out_.Template(kThoughtChannel);
    out_.Template("\n");
    out_.OpenThought();
  }
}

void Renderer::EmptyThought() {
  out_.Template(kChannelBegin);
  out_.Template(kThoughtChannel);
  out_.Template("\n");
  out_.Template(kChannelEnd);
}

}  // namespace

Result<ChatPrompt> RenderChat(const Json& messages, const Json& tools, const ChatOptions& options) {
  RL_RETURN_IF_ERROR(chat::CheckMessages(messages));
  if (!tools.is_null() && !tools.is_array()) {
    return chat::ErrorAt("tools", "chat.tools", "expected a list, found {}", tools.type_name());
  }
  RL_RETURN_IF_ERROR(chat::CheckDepth(tools, "tools"));
  if (options.continue_last) RL_RETURN_IF_ERROR(chat::CheckContinuesLast(messages));
  return Renderer(messages, tools, options).Render();
}

std::string JinjaTemplate(ChatVariant variant) {
  constexpr std::string_view kTurns = R"(<bos>
{%- set ns = namespace(answers=false) -%}
{%- for message in messages -%}
{%- set answers = message['role'] in ['assistant', 'model'] -%}
{%- set system = loop.first and message['role'] in ['system', 'developer'] -%}
{%- if not (answers and ns.answers) -%}
{%- if ns.answers %}{{ '<turn|>\n' }}{% endif -%}
{{- '<|turn>' + ('model' if answers else 'system' if system else message['role']) + '\n' -}}
{%- endif -%}
{%- if message['content'] is string -%}
{{- message['content'] | trim -}}
{%- else -%}
{%- for part in message['content'] if part['type'] == 'text' -%}
{{- part['text'] | trim + (' ' if system else '') -}}
{%- endfor -%}
{%- endif -%}
{%- if not answers -%}{{- '<turn|>\n' -}}{%- endif -%}
{%- set ns.answers = answers -%}
{%- endfor -%}
{%- if ns.answers -%}{{- '<turn|>\n' -}}{%- endif -%}
{%- if add_generation_prompt -%}{{- '<|turn>model\n@' -}}{%- endif -%})";
  std::string text(kTurns);
  const std::string_view thought =
      variant == ChatVariant::kLarge ? "<|channel>thought\\n<channel|>" : "";
  return text.replace(text.find('@'), 1, thought);
}

ChatVariant VariantForModel(std::string_view name, uint64_t parameters) {
  const std::string lower = chat::ToLower(name);
  const auto named = [&](std::string_view size) { return lower.find(size) != std::string::npos; };
  if (named("12b") || named("26b") || named("31b")) return ChatVariant::kLarge;
  if (named("e2b") || named("e4b")) return ChatVariant::kSmall;
  return parameters >= kLargeParameters ? ChatVariant::kLarge : ChatVariant::kSmall;
}

}  // namespace rullama::gemma4

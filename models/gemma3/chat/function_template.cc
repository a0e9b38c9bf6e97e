#include "models/gemma3/chat/function_template.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/common/chat/json.h"
#include "models/common/chat/trim.h"
#include "models/common/chat/validate.h"
#include "models/gemma3/chat/function_markers.h"
#include "models/gemma3/chat/function_values.h"

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

// The sentence that makes the model call functions.
constexpr std::string_view kTrigger =
    "You are a model that can do function calling with the following functions";

bool ContainsWithoutCase(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// The text of a message: its parts, each trimmed, one after the other.
std::string TextOf(const Json& message) {
  const Json& content = Member(message, "content");
  if (content.is_string()) return std::string(chat::Trim(Text(content)));
  std::string text;
  for (const Json& part : content) text += chat::Trim(Text(Member(part, "text")));
  return text;
}

class FunctionRenderer {
 public:
  FunctionRenderer(const Json& messages, const Json& tools, const ChatOptions& options)
      : messages_(messages), tools_(tools), options_(options) {}

  Result<ChatPrompt> Render() {
    out_.Template("<bos>");
    RL_RETURN_IF_ERROR(DeveloperTurn());
    for (size_t i = first_; i < messages_.size(); ++i) {
      if (IsAssistant(RoleOf(messages_[i])) &&
          !(i > first_ && RoleOf(messages_[i - 1]) == "tool")) {
        last_turn_ = i;
      }
    }
    for (size_t i = first_; i < messages_.size(); ++i) {
      RL_RETURN_IF_ERROR(RoleOf(messages_[i]) == "tool" ? ToolResult(i) : Message(i));
    }
    if (options_.add_generation_prompt && !options_.continue_last) GenerationPrompt();
    return std::move(out_).Finish();
  }

 private:
  // What the last rendered message leaves open.
  enum class Ending { kTurn, kCall, kResult };

  void Begin(std::string_view role) {
    out_.Template(kTurnMarkers.begin);
    out_.Template(role);
    out_.Template("\n");
  }

  Status DeveloperTurn() {
    const bool has_message = IsSystem(RoleOf(messages_[0]));
    const bool has_tools = IsTruthy(tools_);
    if (!has_message && !has_tools) return OkStatus();
    Begin("developer");
    const std::string text = has_message ? TextOf(messages_[0]) : std::string();
    first_ = has_message ? 1 : 0;
    out_.User(text);
    if (has_tools && !ContainsWithoutCase(text, kTrigger)) {
      if (!text.empty()) out_.Template("\n");
      out_.Template(kTrigger);
    }
    for (size_t i = 0; has_tools && i < tools_.size(); ++i) {
      out_.Template(kDeclarationBegin);
      RL_RETURN_IF_ERROR(WriteDeclaration(tools_[i], fmt::format("tools[{}]", i), out_));
      out_.Template(kDeclarationEnd);
    }
    out_.Template(kTurnMarkers.end);
    out_.Template("\n");
    return OkStatus();
  }

  Status Message(size_t index) {
    const Json& message = messages_[index];
    const std::string_view role = RoleOf(message);
    const bool is_model = IsAssistant(role);
    if (ending_ == Ending::kCall) {
      return ErrorAt(fmt::format("messages[{}]", index), "chat.tool_result",
                     "the calls before this message have no results, expected messages of role "
                     "'tool' with them");
    }
    if (ending_ == Ending::kResult && !is_model) {
      out_.Template(kTurnMarkers.end);
      out_.Template("\n");
    }
    if (ending_ != Ending::kResult || !is_model) {
      Begin(is_model ? "model" : IsSystem(role) ? "developer" : role);
    }
    trained_ = is_model && (options_.trained == TrainedTurns::kAll ||
                            (options_.trained == TrainedTurns::kLast && index >= last_turn_));
    out_.SetTrained(trained_);
    Content(message);
    RL_RETURN_IF_ERROR(Calls(message, index));
    const bool ends_example =
        options_.trained != TrainedTurns::kNone && index + 1 == messages_.size();
    if (options_.continue_last && index + 1 == messages_.size()) return OkStatus();
    if (calls_.empty()) {
      out_.Template(kTurnMarkers.end);
      out_.SetTrained(false);
      if (!ends_example) out_.Template("\n");
    } else if (ends_example) {
      out_.Template(kResponseBegin);  // with which the model ends its answer
    }
    ending_ = calls_.empty() ? Ending::kTurn : Ending::kCall;
    out_.SetTrained(false);
    return OkStatus();
  }

  Status Calls(const Json& message, size_t index) {
    calls_.clear();
    const Json& calls = Member(message, "tool_calls");
    for (size_t i = 0; i < calls.size(); ++i) {
      const Json& function = Member(calls[i], "function");
      const std::string path = fmt::format("messages[{}].tool_calls[{}].function", index, i);
      RL_ASSIGN_OR_RETURN(const Json arguments, chat::CallArguments(function, path));
      out_.Template(kCallBegin);
      out_.Template("call:");
      out_.User(Text(Member(function, "name")));
      out_.Template("{");
      RL_RETURN_IF_ERROR(WriteMembers(arguments, path + ".arguments", out_));
      out_.Template("}");
      out_.Template(kCallEnd);
      calls_.push_back({.call = &calls[i]});
    }
    return OkStatus();
  }

  // The call that a result belongs to: by id, else the first that has none yet. Null: there is none
  // of the id, or all have results.
  const Json* CallOf(const Json& result) {
    const Json& id = Member(result, "tool_call_id");
    for (OpenCall& open : calls_) {
      if (id.is_string() ? Member(*open.call, "id") != id : open.answered) continue;
      open.answered = true;
      return open.call;
    }
    return nullptr;
  }

  Status ToolResult(size_t index) {
    const Json& message = messages_[index];
    const std::string path = fmt::format("messages[{}].content", index);
    const Json& own_name = Member(message, "name");
    const bool has_id = Member(message, "tool_call_id").is_string();
    const Json* call = has_id || !IsTruthy(own_name) ? CallOf(message) : nullptr;
    std::string_view name = IsTruthy(own_name) ? Text(own_name) : std::string_view("unknown");
    if (call != nullptr) name = Text(Member(Member(*call, "function"), "name"));
    // The model writes the marker with which its calls end, and learns to; the rest is not its own.
    out_.SetTrained(trained_ && ending_ == Ending::kCall);
    out_.Template(kResponseBegin);
    out_.SetTrained(false);
    out_.Template("response:");
    out_.User(name);
    out_.Template("{");
    RL_RETURN_IF_ERROR(ResultValue(message, path));
    out_.Template("}");
    out_.Template(kResponseEnd);
    ending_ = Ending::kResult;
    return OkStatus();
  }

  void Content(const Json& message) {
    const Json& content = Member(message, "content");
    if (!content.is_array()) return out_.User(TextOf(message));
    for (const Json& part : content) {
      IsPicture(part) ? WritePicture(out_) : out_.User(chat::Trim(Text(Member(part, "text"))));
    }
  }

  // The members of an object, which may be written as text; any other text as one value.
  Status ResultValue(const Json& message, const std::string& path) {
    const Json& content = Member(message, "content");
    if (content.is_object()) return WriteMembers(content, path, out_);
    std::string text;
    if (content.is_string()) text = Text(content);
    for (const Json& part : content.is_array() ? content : Json::array()) {
      text += Text(Member(part, "text"));
    }
    const auto parsed = chat::ParseJson(text);
    if (parsed && parsed->is_object()) return WriteMembers(*parsed, path, out_);
    out_.Template("value:");
    return WriteValue(text, path, out_);
  }

  void GenerationPrompt() {
    if (ending_ == Ending::kTurn) Begin("model");
    if (ending_ == Ending::kCall)
      out_.Template(kResponseBegin);  // left open: a result is to follow
  }

  struct OpenCall {
    const Json* call = nullptr;
    bool answered = false;
  };

  const Json& messages_;
  const Json& tools_;
  const ChatOptions& options_;
  PromptWriter out_;
  size_t first_ = 0;             // first message after the developer's turn
  size_t last_turn_ = 0;         // first message of the model's last turn
  std::vector<OpenCall> calls_;  // of the last message of the model
  bool trained_ = false;         // whether that message is learnt
  Ending ending_ = Ending::kTurn;
};

Status CheckContents(const Json& messages, bool is_example) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    const Json& content = Member(messages[i], "content");
    const bool is_result = RoleOf(messages[i]) == "tool";
    RL_RETURN_IF_ERROR(is_result ? CheckTextParts(content, path)
                                 : CheckParts(content, is_example, path));
    if (!IsTruthy(Member(messages[i], "tool_responses"))) continue;
    return ErrorAt(path + ".tool_responses", "chat.tool_result",
                   "found results in an assistant's message, expected messages of role 'tool'");
  }
  return OkStatus();
}

}  // namespace

Result<ChatPrompt> RenderFunctionChat(const Json& messages, const Json& tools,
                                      const ChatOptions& options) {
  RL_RETURN_IF_ERROR(chat::CheckMessages(messages));
  if (options.continue_last) RL_RETURN_IF_ERROR(chat::CheckContinuesLast(messages));
  RL_RETURN_IF_ERROR(CheckContents(messages, options.trained != TrainedTurns::kNone));
  if (!tools.is_null() && !tools.is_array()) {
    return ErrorAt("tools", "chat.tools", "expected a list, found {}", tools.type_name());
  }
  RL_RETURN_IF_ERROR(chat::CheckDepth(tools, "tools"));
  return FunctionRenderer(messages, tools, options).Render();
}

}  // namespace rullama::gemma3

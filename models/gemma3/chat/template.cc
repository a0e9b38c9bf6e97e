#include "models/gemma3/chat/template.h"

#include <string>
#include <string_view>
#include <utility>

#include "models/common/chat/json.h"
#include "models/common/chat/trim.h"
#include "models/common/chat/validate.h"

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

Status CheckParts(const Json& content, const std::string& path) {
  if (!content.is_array()) return OkStatus();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string_view type = Text(Member(content[i], "type"));
    if (type == "text") continue;
    return ErrorAt(fmt::format("{}.content[{}].type", path, i), "chat.content",
                   "found '{}', expected text: this model reads text only", type);
  }
  return OkStatus();
}

// Checks the template's demands beyond the form of a message. `first` is the first one of a turn.
Status CheckTurns(const Json& messages, size_t first) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const std::string path = fmt::format("messages[{}]", i);
    const std::string_view role = RoleOf(message);
    if (role == "tool" || IsTruthy(Member(message, "tool_calls"))) {
      return ErrorAt(path, "chat.tools", "calls of tools, which Gemma 3 was not trained for");
    }
    RL_RETURN_IF_ERROR(CheckParts(Member(message, "content"), path));
    if (i < first) continue;
    const std::string_view expected = (i - first) % 2 == 0 ? "user" : "assistant";
    const bool fits = expected == "user" ? role == "user" : IsAssistant(role);
    if (fits) continue;
    return ErrorAt(path + ".role", "chat.role",
                   "found '{}', expected '{}': after an optional system message, turns of user and "
                   "assistant alternate",
                   role, expected);
  }
  if (first < messages.size()) return OkStatus();
  return ErrorAt("messages", "chat.messages",
                 "found a system message alone, expected a user's too");
}

class Renderer {
 public:
  Renderer(const Json& messages, const ChatOptions& options)
      : messages_(messages), options_(options), first_(IsSystem(RoleOf(messages[0])) ? 1 : 0) {}

  Result<ChatPrompt> Render() {
    RL_RETURN_IF_ERROR(CheckTurns(messages_, first_));
    out_.Template("<bos>");
    for (size_t i = first_; i < messages_.size(); ++i) {
      options_.form == ChatForm::kTurns ? Turn(i) : Passage(i);
    }
    if (options_.add_generation_prompt && options_.form == ChatForm::kTurns) {
      out_.Template(kTurnMarkers.begin);
      out_.Template("model\n");
    }
    return std::move(out_).Finish();
  }

 private:
  void Turn(size_t index) {
    const bool is_model = IsAssistant(RoleOf(messages_[index]));
    out_.Template(kTurnMarkers.begin);
    out_.Template(is_model ? "model\n" : "user\n");
    if (index == first_) SystemText();
    out_.SetTrained(IsTrained(index));
    Content(index, /*trim=*/true);
    out_.Template(kTurnMarkers.end);
    out_.SetTrained(false);
    const bool ends_example =
        options_.trained != TrainedTurns::kNone && index + 1 == messages_.size();
    if (!ends_example) out_.Template("\n");
  }

  void Passage(size_t index) {
    if (index == first_) {
      SystemText();
    } else if (!IsAssistant(RoleOf(messages_[index]))) {
      out_.Template("\n");
    }
    out_.SetTrained(IsTrained(index));
    Content(index, /*trim=*/false);
    out_.SetTrained(false);
    if (IsTrained(index)) out_.EndAnswer();
  }

  void SystemText() {
    if (first_ == 0) return;
    Content(0, /*trim=*/false);
    out_.Template("\n\n");
  }

  void Content(size_t index, bool trim) {
    const auto write = [&](std::string_view text) { out_.User(trim ? chat::Trim(text) : text); };
    const Json& content = Member(messages_[index], "content");
    if (content.is_string()) return write(Text(content));
    for (const Json& part : content) write(Text(Member(part, "text")));
  }

  [[nodiscard]] bool IsTrained(size_t index) const {
    if (!IsAssistant(RoleOf(messages_[index]))) return false;
    const bool is_last = index + 2 >= messages_.size();
    return options_.trained == TrainedTurns::kAll ||
           (options_.trained == TrainedTurns::kLast && is_last);
  }

  const Json& messages_;
  const ChatOptions& options_;
  size_t first_;  // first message of a turn
  PromptWriter out_;
};

}  // namespace

Result<ChatPrompt> RenderChat(const Json& messages, const Json& tools, const ChatOptions& options) {
  RL_RETURN_IF_ERROR(chat::CheckMessages(messages));
  if (IsTruthy(tools)) {
    return ErrorAt("tools", "chat.tools",
                   "found tools, which Gemma 3 was not trained for; leave them out");
  }
  return Renderer(messages, options).Render();
}

}  // namespace rullama::gemma3

#include "models/common/chat/validate.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "models/common/chat/json.h"
#include "models/common/chat/trim.h"

namespace rullama::chat {
namespace {

using Json = nlohmann::json;

constexpr auto kRoles =
    std::to_array<std::string_view>({"system", "developer", "user", "assistant", "model", "tool"});
constexpr auto kMediaTypes =
    std::to_array<std::string_view>({"image", "image_url", "audio", "input_audio", "video"});

template <size_t kSize>
bool Contains(const std::array<std::string_view, kSize>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

Status CheckOptionalString(const Json& message, std::string_view key, std::string_view id,
                           const std::string& path) {
  const Json& value = Member(message, key);
  if (value.is_null() || value.is_string()) return OkStatus();
  return ErrorAt(fmt::format("{}.{}", path, key), id, "expected a string, found {}",
                 value.type_name());
}

// The times of a video's frames.
Status CheckSeconds(const Json& seconds, const std::string& path) {
  constexpr double kMostSeconds = 1e6;
  const auto is_time = [](const Json& frame) {
    return frame.is_number() && frame.get<double>() >= 0 && frame.get<double>() <= kMostSeconds;
  };
  if (seconds.is_null() || (seconds.is_array() && !seconds.empty() &&
                            std::all_of(seconds.begin(), seconds.end(), is_time))) {
    return OkStatus();
  }
  return ErrorAt(path + ".seconds", "chat.content",
                 "expected a list of the times of frames, numbers from 0 to {}", kMostSeconds);
}

Status CheckPart(const Json& part, std::string_view role, const std::string& path) {
  if (!part.is_object()) {
    return ErrorAt(path, "chat.content", "expected an object, found {}", part.type_name());
  }
  const Json& type = Member(part, "type");
  if (!type.is_string()) {
    return ErrorAt(path + ".type", "chat.content", "expected a string, found {}", type.type_name());
  }
  if (Text(type) == "text") {
    const Json& text = Member(part, "text");
    if (text.is_string()) return OkStatus();
    return ErrorAt(path + ".text", "chat.content", "expected a string, found {}", text.type_name());
  }
  if (Contains(kMediaTypes, Text(type)) && !IsSystem(role)) {
    return Text(type) == "video" ? CheckSeconds(Member(part, "seconds"), path) : OkStatus();
  }
  return ErrorAt(
      path + ".type", "chat.content",
      "unknown type '{}' for a message of role '{}'; expected text, image, audio or video",
      Text(type), role);
}

bool MayLackContent(const Json& message, std::string_view role) {
  constexpr auto kInstead = std::to_array<std::string_view>(
      {"tool_calls", "tool_responses", "reasoning", "reasoning_content"});
  return IsAssistant(role) &&
         std::any_of(kInstead.begin(), kInstead.end(),
                     [&](std::string_view key) { return IsTruthy(Member(message, key)); });
}

Status CheckContent(const Json& message, std::string_view role, const std::string& path) {
  const Json& content = Member(message, "content");
  if (content.is_string()) return OkStatus();
  if (content.is_null() && MayLackContent(message, role)) return OkStatus();
  // The result of a tool may be the object it returned.
  if (content.is_object() && role == "tool") return OkStatus();
  if (!content.is_array()) {
    return ErrorAt(path + ".content", "chat.content",
                   "expected a string or a list of parts, found {}", content.type_name());
  }
  for (size_t i = 0; i < content.size(); ++i) {
    RL_RETURN_IF_ERROR(CheckPart(content[i], role, fmt::format("{}.content[{}]", path, i)));
  }
  return OkStatus();
}

Status CheckCall(const Json& call, const std::string& path) {
  RL_RETURN_IF_ERROR(CheckOptionalString(call, "id", "chat.tool_call", path));
  const Json& function = Member(call, "function");
  const Json& name = Member(function, "name");
  if (!name.is_string() || Text(name).empty()) {
    return ErrorAt(path + ".function.name", "chat.tool_call",
                   "expected the name of the called function as a string");
  }
  RL_RETURN_IF_ERROR(CallArguments(function, path + ".function"));
  return OkStatus();
}

Status CheckResponse(const Json& response, const std::string& path) {
  if (!response.is_object()) {
    return ErrorAt(path, "chat.tool_result", "expected an object, found {}", response.type_name());
  }
  return CheckOptionalString(response, "name", "chat.tool_result", path);
}

// tool_calls and tool_responses: lists, of assistant messages only.
template <typename CheckEntry>
Status CheckList(const Json& message, std::string_view key, std::string_view role,
                 std::string_view id, const std::string& message_path, const CheckEntry& check) {
  const Json& list = Member(message, key);
  if (list.is_null()) return OkStatus();
  const std::string path = fmt::format("{}.{}", message_path, key);
  if (!list.is_array()) return ErrorAt(path, id, "expected a list, found {}", list.type_name());
  if (!list.empty() && !IsAssistant(role)) {
    return ErrorAt(path, id, "only messages of role 'assistant' have these, this one is '{}'",
                   role);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    RL_RETURN_IF_ERROR(check(list[i], fmt::format("{}[{}]", path, i)));
  }
  return OkStatus();
}

Status CheckMessage(const Json& message, const std::string& path) {
  if (!message.is_object()) {
    return ErrorAt(path, "chat.messages", "expected an object, found {}", message.type_name());
  }
  const Json& role_value = Member(message, "role");
  if (!role_value.is_string() || !Contains(kRoles, Text(role_value))) {
    return ErrorAt(path + ".role", "chat.role",
                   "found {}, expected system, developer, user, assistant or tool",
                   role_value.is_string() ? fmt::format("'{}'", Text(role_value))
                                          : std::string(role_value.type_name()));
  }
  const std::string_view role = Text(role_value);
  RL_RETURN_IF_ERROR(CheckContent(message, role, path));
  RL_RETURN_IF_ERROR(CheckOptionalString(message, "reasoning", "chat.content", path));
  RL_RETURN_IF_ERROR(CheckOptionalString(message, "reasoning_content", "chat.content", path));
  RL_RETURN_IF_ERROR(CheckOptionalString(message, "tool_call_id", "chat.tool_result", path));
  if (role == "tool")
    RL_RETURN_IF_ERROR(CheckOptionalString(message, "name", "chat.tool_result", path));
  RL_RETURN_IF_ERROR(CheckList(message, "tool_calls", role, "chat.tool_call", path, CheckCall));
  return CheckList(message, "tool_responses", role, "chat.tool_result", path, CheckResponse);
}

// A tool's result belongs to the calls of the assistant message before it.
Status CheckToolResults(const Json& messages) {
  bool open_calls = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (Text(Member(messages[i], "role")) != "tool") {
      open_calls = IsTruthy(Member(messages[i], "tool_calls")) &&
                   !IsTruthy(Member(messages[i], "tool_responses"));
      continue;
    }
    if (open_calls) continue;
    return ErrorAt(fmt::format("messages[{}]", i), "chat.tool_result",
                   "a tool result without a call; the assistant message before it has to have "
                   "tool_calls, and no tool_responses");
  }
  return OkStatus();
}

}  // namespace

Result<std::string_view> DeclaredName(const Json& function, const std::string& path) {
  const Json& name = Member(function, "name");
  if (name.is_string() && !Text(name).empty()) return Text(name);
  return ErrorAt(path + ".name", "chat.tools", "expected the name of the function as a string");
}

Result<Json> CallArguments(const Json& function, const std::string& path) {
  const Json& arguments = Member(function, "arguments");
  if (arguments.is_object()) return arguments;
  if (arguments.is_null()) return Json::object();
  const std::string arguments_path = path + ".arguments";
  if (!arguments.is_string()) {
    return ErrorAt(arguments_path, "chat.tool_call", "expected an object, found {}",
                   arguments.type_name());
  }
  // A call without arguments, as streams of OpenAI's API have it.
  if (Trim(Text(arguments)).empty()) return Json::object();
  auto parsed = ParseJson(Text(arguments));
  if (!parsed) return tl::unexpected<Error>(std::move(parsed).error().WithContext(arguments_path));
  if (parsed->is_object()) return parsed;
  return ErrorAt(arguments_path, "chat.tool_call", "the string holds {}, expected an object",
                 parsed->type_name());
}

std::string_view RoleOf(const Json& message) { return Text(Member(message, "role")); }

Status CheckMessages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return ErrorAt("messages", "chat.messages", "expected a list of at least one message, found {}",
                   messages.is_array() ? "none" : messages.type_name());
  }
  RL_RETURN_IF_ERROR(CheckDepth(messages, "messages"));
  for (size_t i = 0; i < messages.size(); ++i) {
    RL_RETURN_IF_ERROR(CheckMessage(messages[i], fmt::format("messages[{}]", i)));
  }
  return CheckToolResults(messages);
}

Status CheckContinuesLast(const Json& messages) {
  const Json& last = messages.back();
  const std::string path = fmt::format("messages[{}]", messages.size() - 1);
  if (!IsAssistant(RoleOf(last))) {
    return ErrorAt(path, "chat.continue",
                   "found a message of role '{}', expected one of the assistant, which the answer "
                   "is to continue",
                   RoleOf(last));
  }
  if (!IsTruthy(Member(last, "tool_calls"))) return OkStatus();
  return ErrorAt(path, "chat.continue",
                 "found calls of tools, expected a text alone, which the answer is to continue");
}

}  // namespace rullama::chat

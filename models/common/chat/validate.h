// Whether a conversation has the shape that rendering relies on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace rullama::chat {

// Whether a message of this role gives instructions.
inline bool IsSystem(std::string_view role) { return role == "system" || role == "developer"; }
// Whether the model has written, or is to write, a message of this role.
inline bool IsAssistant(std::string_view role) { return role == "assistant" || role == "model"; }

// The role of a message that has been checked.
std::string_view RoleOf(const nlohmann::json& message);

// `messages` have the shape of the OpenAI chat API: role (system, developer, user, assistant or
// model, tool), content (a string or a list of parts of type text, image, image_url, audio,
// input_audio, video; a video may have the times of its frames in `seconds`), and optionally
// reasoning or reasoning_content, tool_calls, tool_responses, tool_call_id, name. Errors (kUsage),
// each naming the place: chat.messages, chat.role, chat.content, chat.tool_call, chat.tool_result,
// chat.depth, chat.json.
Status CheckMessages(const nlohmann::json& messages);

// Whether the model may continue the text of the last message: error chat.continue (kUsage) if it
// is not the assistant's, or has calls. The messages have been checked.
Status CheckContinuesLast(const nlohmann::json& messages);

// The name of a function that a tool declares. Error chat.tools, naming `path`.
Result<std::string_view> DeclaredName(const nlohmann::json& function, const std::string& path);

// The call's arguments as an object: given as one, as null or absent (then empty), or as a string
// that holds one or is blank (then empty, too). Error chat.tool_call, chat.json or chat.depth,
// naming `path`.
Result<nlohmann::json> CallArguments(const nlohmann::json& function, const std::string& path);

}  // namespace rullama::chat

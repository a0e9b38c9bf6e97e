#include "server/message_fields.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <string>
#include <utility>

#include "server/media_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

const json& MemberOf(const json& object, const char* name) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool MayHaveMedia(const json& role) { return role == "user" || role == "tool"; }

// A list of parts. Those of media become parts for the engine.
void ReadParts(FieldReader& fields, const std::string& place, const json& role, json& parts,
               std::vector<Medium>& media) {
  for (size_t i = 0; i < parts.size() && !fields.error(); ++i) {
    const std::string at = fmt::format("{}[{}]", place, i);
    const json& type = MemberOf(parts[i], "type");
    if (!parts[i].is_object()) {
      fields.Fail("invalid_type", at,
                  fmt::format("is of type {}, expected an object", parts[i].type_name()));
    } else if (!type.is_string()) {
      fields.Fail("invalid_type", at + ".type", "is not a text; expected \"text\"");
    } else if (IsMediaPart(type.get_ref<const std::string&>()) && MayHaveMedia(role)) {
      parts[i] = ReadMediaPart(fields, at, parts[i], media);
    } else if (type != "text") {
      fields.Fail("unsupported_value", at + ".type",
                  "is not \"text\"; messages of users and results of tools may also have "
                  "\"image_url\" and \"input_audio\"");
    } else if (!MemberOf(parts[i], "text").is_string()) {
      fields.Fail("invalid_type", at + ".text", "is not a text");
    }
  }
}

void CheckRole(FieldReader& fields, const std::string& place, const json& role) {
  if (role.is_null()) {
    return fields.Fail("missing_required_parameter", place, "is missing; give a role");
  }
  if (!role.is_string()) return fields.Fail("invalid_type", place, "is not a text");
  for (const std::string_view known : kRoles) {
    if (role == known) return;
  }
  fields.Fail("invalid_value", place, fmt::format("is not one of {}", fmt::join(kRoles, ", ")));
}

void ReadContent(FieldReader& fields, const std::string& place, json& message,
                 std::vector<Medium>& media) {
  const json& content = MemberOf(message, "content");
  if (content.is_array()) {
    return ReadParts(fields, place, message["role"], message["content"], media);
  }
  if (content.is_string()) return;
  const bool instead =
      message["role"] == "assistant" &&
      (!MemberOf(message, "tool_calls").empty() ||
       !MemberOf(message, "reasoning_content").empty() || !MemberOf(message, "reasoning").empty());
  if (content.is_null() && instead) return;
  fields.Fail(
      content.is_null() ? "missing_required_parameter" : "invalid_type", place,
      fmt::format("is of type {}, expected a text or a list of parts", content.type_name()));
}

// The ids of calls that the results after a message may name.
void CollectCalls(const json& message, std::set<std::string>& calls) {
  if (message["role"] == "tool") return;
  calls.clear();
  for (const json& call : MemberOf(message, "tool_calls")) {
    if (const json& id = MemberOf(call, "id"); id.is_string()) calls.insert(id);
  }
}

void ReadMessage(FieldReader& fields, const std::string& place, json& message,
                 std::set<std::string>& calls, std::vector<Medium>& media) {
  if (!message.is_object()) {
    return fields.Fail("invalid_type", place,
                       fmt::format("is of type {}, expected an object", message.type_name()));
  }
  CheckRole(fields, place + ".role", MemberOf(message, "role"));
  if (fields.error()) return;
  ReadContent(fields, place + ".content", message, media);
  const json& id = MemberOf(message, "tool_call_id");
  if (message["role"] == "tool" && id.is_string() && !calls.contains(id)) {
    fields.Fail("invalid_value", place + ".tool_call_id",
                "names no call of the assistant message before it");
  }
  CollectCalls(message, calls);
}

const json* FindList(FieldReader& fields, bool required) {
  const json* messages = fields.Find("messages");
  if (messages == nullptr) {
    if (required) {
      fields.Fail("missing_required_parameter", "messages", "is missing; give a list of messages");
    }
    return nullptr;
  }
  if (!messages->is_array()) {
    fields.Fail("invalid_type", "messages", "is not a list");
  } else if ((required && messages->empty()) || messages->size() > kMaxMessages) {
    fields.Fail("invalid_value", "messages",
                fmt::format("has {} messages, expected {} to {}", messages->size(),
                            required ? 1 : 0, kMaxMessages));
  }
  return fields.error() ? nullptr : messages;
}

// The call of an Ollama message in OpenAI's form. Calls without an id get one.
json CallFromOllama(const json& call, size_t index) {
  json out = {{"id", fmt::format("call_{}", index)}, {"type", "function"}};
  if (const json& id = MemberOf(call, "id"); id.is_string()) out["id"] = id;
  out["function"] = MemberOf(call, "function");
  if (out["function"].is_object()) out["function"].erase("index");
  return out;
}

// Gives a result the id of its call: the one it names, else that of the tool of this name, else the
// next one without a result.
void LinkResult(json& message, const json& calls, size_t& results) {
  const size_t next = results++;
  if (MemberOf(message, "tool_call_id").is_string()) return;
  const json& name = MemberOf(message, "tool_name");
  for (const json& call : calls) {
    if (name.is_string() && MemberOf(call["function"], "name") == name) {
      message["tool_call_id"] = call["id"];
      return;
    }
  }
  if (next < calls.size()) message["tool_call_id"] = calls[next]["id"];
}

// `images` of an Ollama message, which stand before its text.
void ReadImages(FieldReader& fields, const std::string& place, json& message,
                std::vector<Medium>& media) {
  const json& images = MemberOf(message, "images");
  if (images.empty()) return;
  if (!MayHaveMedia(message["role"]) || !message["content"].is_string()) {
    return fields.Fail("unsupported_value", place + ".images",
                       "is given with something else than the text of a user or of a tool");
  }
  json parts = ReadMediaList(fields, place + ".images", images, media);
  parts.push_back({{"type", "text"}, {"text", message["content"]}});
  message["content"] = std::move(parts);
}

}  // namespace

json ReadMessages(FieldReader& fields, std::vector<Medium>& media) {
  const json* found = FindList(fields, /*required=*/true);
  if (found == nullptr) return nullptr;
  json messages = *found;
  std::set<std::string> calls;
  for (size_t i = 0; i < messages.size() && !fields.error(); ++i) {
    ReadMessage(fields, fmt::format("messages[{}]", i), messages[i], calls, media);
  }
  return fields.error() ? json(nullptr) : messages;
}

json ReadUserContent(FieldReader& fields, const std::string& place, const json& content,
                     std::vector<Medium>& media) {
  json message = {{"role", "user"}, {"content", content}};
  ReadContent(fields, place, message, media);
  return message["content"];
}

json ReadOllamaMessages(FieldReader& fields, std::vector<Medium>& media) {
  const json* found = FindList(fields, /*required=*/false);
  if (found == nullptr) return json::array();
  json messages = *found;
  json calls = json::array();
  size_t results = 0;
  std::set<std::string> ids;
  for (size_t i = 0; i < messages.size() && !fields.error(); ++i) {
    json& message = messages[i];
    const std::string place = fmt::format("messages[{}]", i);
    if (message.is_object()) {
      if (message.contains("thinking")) message["reasoning_content"] = message["thinking"];
      if (MemberOf(message, "content").is_null()) message["content"] = "";
      if (MemberOf(message, "role") == "tool") {
        LinkResult(message, calls, results);
      } else {
        calls = json::array();
        results = 0;
        for (const json& call : MemberOf(message, "tool_calls")) {
          calls.push_back(CallFromOllama(call, calls.size()));
        }
        if (!calls.empty()) message["tool_calls"] = calls;
      }
    }
    ReadMessage(fields, place, message, ids, media);
    if (!fields.error()) ReadImages(fields, place, message, media);
  }
  return messages;
}

}  // namespace rullama::server

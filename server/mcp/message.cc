#include "server/mcp/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/json_reader.h"
#include "core/base/printable.h"

namespace rullama::server::mcp {
namespace {

using nlohmann::json;

constexpr JsonLimits kLimits = {.depth = 64, .values = 200'000, .keys_may_repeat = true};
constexpr size_t kMaxBatch = 1'000;
constexpr size_t kMaxErrorBytes = 1'000;
constexpr size_t kMaxToolNameBytes = 256;

tl::unexpected<Error> Wrong(std::string_view what) {
  return MakeError(ErrorKind::kRuntime, "mcp.protocol", "{}", what);
}

// On one line; bytes that are not UTF-8 are replaced.
std::string WireText(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The member of an object if it is a text, else an empty one.
std::string TextOf(const json& object, std::string_view name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<RpcError> ReadRpcError(const json& value) {
  if (!value.is_object()) return Wrong("an answer has an error that is not an object");
  const auto code = value.find("code");
  const bool has_code = code != value.end() && code->is_number_integer();
  return RpcError{.code = has_code ? code->get<int64_t>() : 0,
                  .message = Printable(TextOf(value, "message"), kMaxErrorBytes)};
}

Result<Message> ReadMessage(const json& value) {
  if (!value.is_object() || TextOf(value, "jsonrpc") != "2.0") {
    return Wrong("a message is not an object with \"jsonrpc\": \"2.0\"");
  }
  Message message;
  const auto id = value.find("id");
  const bool has_id = id != value.end() && (id->is_number_integer() || id->is_string());
  if (has_id) message.id = *id;
  if (value.contains("method")) {
    message.method = TextOf(value, "method");
    if (message.method.empty()) return Wrong("a message has a method that is not a text");
    message.kind = has_id ? Message::Kind::kRequest : Message::Kind::kNotification;
    return message;
  }
  message.kind = Message::Kind::kAnswer;
  const auto error = value.find("error");
  const bool has_error = error != value.end() && !error->is_null();
  if (has_error == value.contains("result")) {
    return Wrong("a message has none of method, result and error, or two of them");
  }
  if (has_error) {
    RL_ASSIGN_OR_RETURN(message.error, ReadRpcError(*error));
  } else {
    message.result = value["result"];
  }
  if (!has_id && !has_error) return Wrong("an answer has no id");
  return message;
}

// Empty if the tool can be offered, else why not.
std::string FaultOf(const Tool& tool) {
  if (tool.name.empty()) return "has no name";
  if (tool.name.size() > kMaxToolNameBytes) {
    return fmt::format("has a name of more than {} bytes", kMaxToolNameBytes);
  }
  if (!tool.schema.is_object()) return "has no schema of its arguments";
  const auto type = tool.schema.find("type");
  if (type != tool.schema.end() && *type != "object") return "has arguments that are no object";
  if (tool.name.size() + tool.description.size() + WireText(tool.schema).size() > kMaxToolBytes) {
    return "is too large";
  }
  return {};
}

// One part of a result, as text for the model.
std::string PartText(const json& part) {
  const std::string type = TextOf(part, "type");
  if (type == "text") return TextOf(part, "text");
  if (type == "resource_link") return TextOf(part, "uri");
  if (type == "resource" && part.contains("resource") && part["resource"].is_object()) {
    const json& resource = part["resource"];
    const std::string text = TextOf(resource, "text");
    return text.empty() ? fmt::format("[the content of {}]", TextOf(resource, "uri")) : text;
  }
  const std::string media = TextOf(part, "mimeType");
  return fmt::format("[a part of type {}, which cannot be shown here]",
                     media.empty() ? type : media);
}

// At most kMaxResultBytes, whole characters.
std::string Bounded(std::string text) {
  if (text.size() <= kMaxResultBytes) return text;
  const size_t all = text.size();
  size_t end = kMaxResultBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  text.resize(end);
  return text + fmt::format("\n[{} more bytes of this result are left out]", all - end);
}

}  // namespace

Result<std::vector<Message>> ParseMessages(std::string_view text) {
  const auto value = ReadJson(text, kLimits);
  if (!value) return Wrong(fmt::format("a message {}", value.error().ToString()));
  std::vector<Message> messages;
  if (!value->is_array()) {
    RL_ASSIGN_OR_RETURN(Message message, ReadMessage(*value));
    messages.push_back(std::move(message));
    return messages;
  }
  if (value->size() > kMaxBatch) return Wrong("a list has too many messages");
  for (const json& one : *value) {
    RL_ASSIGN_OR_RETURN(Message message, ReadMessage(one));
    messages.push_back(std::move(message));
  }
  return messages;
}

std::string RequestText(int64_t id, std::string_view method, json params) {
  return WireText(
      {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}});
}

std::string NotificationText(std::string_view method, json params) {
  json message = {{"jsonrpc", "2.0"}, {"method", method}};
  if (!params.empty()) message["params"] = std::move(params);
  return WireText(message);
}

std::string AnswerText(const json& id, json result) {
  return WireText({{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}});
}

std::string RefusalText(const json& id, const RpcError& error) {
  return WireText({{"jsonrpc", "2.0"},
                   {"id", id},
                   {"error", {{"code", error.code}, {"message", error.message}}}});
}

Result<ToolPage> ReadToolPage(const json& result) {
  if (!result.is_object() || !result.contains("tools") || !result["tools"].is_array()) {
    return Wrong("the answer to tools/list has no list of tools");
  }
  ToolPage page{.tools = {}, .refused = {}, .next = TextOf(result, "nextCursor")};
  for (const json& one : result["tools"]) {
    if (!one.is_object()) {
      page.refused.emplace_back("a tool is not an object");
      continue;
    }
    const auto schema = one.find("inputSchema");
    Tool tool{.name = TextOf(one, "name"),
              .description = TextOf(one, "description"),
              .schema = schema == one.end() ? json() : *schema};
    if (const std::string fault = FaultOf(tool); !fault.empty()) {
      page.refused.push_back(fmt::format("the tool '{}' {}", ShownName(tool.name), fault));
    } else {
      page.tools.push_back(std::move(tool));
    }
  }
  return page;
}

Result<ToolOutcome> ReadToolOutcome(const json& result) {
  if (!result.is_object()) return Wrong("the answer to tools/call is not an object");
  ToolOutcome outcome;
  const auto failed = result.find("isError");
  outcome.failed = failed != result.end() && failed->is_boolean() && failed->get<bool>();
  const auto content = result.find("content");
  if (content != result.end() && content->is_array()) {
    for (const json& part : *content) {
      if (!part.is_object()) return Wrong("a part of a tool's result is not an object");
      if (!outcome.text.empty()) outcome.text += '\n';
      outcome.text += PartText(part);
    }
  }
  const auto structured = result.find("structuredContent");
  if (outcome.text.empty() && structured != result.end()) outcome.text = WireText(*structured);
  outcome.text = Bounded(std::move(outcome.text));
  return outcome;
}

}  // namespace rullama::server::mcp

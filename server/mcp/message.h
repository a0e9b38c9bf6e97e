// The messages of the Model Context Protocol, which are those of JSON-RPC 2.0. What a server writes
// is foreign text. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama::server::mcp {

// The most bytes of one message; a server that writes more is ended.
inline constexpr size_t kMaxMessageBytes = 4 << 20;
// The most bytes of a tool's result that a model is given; a note says how much was left out.
inline constexpr size_t kMaxResultBytes = 256 << 10;
// The most bytes of a tool's name and description together with its schema.
inline constexpr size_t kMaxToolBytes = 64 << 10;

struct RpcError {
  int64_t code = 0;
  std::string message;
};
inline constexpr int64_t kMethodNotFound = -32601;

struct Message {
  enum class Kind : uint8_t { kRequest, kNotification, kAnswer };
  Kind kind = Kind::kNotification;
  nlohmann::json id = {};              // of requests and answers
  std::string method = {};             // of requests and notifications
  nlohmann::json result = {};          // of an answer without an error
  std::optional<RpcError> error = {};  // of an answer
};

// One message, or a list of them as older versions have it. Error mcp.protocol (kRuntime).
Result<std::vector<Message>> ParseMessages(std::string_view text);

std::string RequestText(int64_t id, std::string_view method, nlohmann::json params);
std::string NotificationText(std::string_view method, nlohmann::json params);
std::string AnswerText(const nlohmann::json& id, nlohmann::json result);
std::string RefusalText(const nlohmann::json& id, const RpcError& error);

struct Tool {
  std::string name;
  std::string description;
  nlohmann::json schema;  // of its arguments, an object schema
};
// A page of the answer to tools/list.
struct ToolPage {
  std::vector<Tool> tools;
  std::vector<std::string> refused;  // why others are left out
  std::string next;                  // the cursor of the next page; empty: it is the last
};
// Error mcp.protocol (kRuntime).
Result<ToolPage> ReadToolPage(const nlohmann::json& result);

// The result of a tool, as text for a model.
struct ToolOutcome {
  std::string text;
  bool failed = false;
};
// The result in an answer to tools/call. Pictures and sounds are named in the text, and not part of
// it. Error mcp.protocol (kRuntime).
Result<ToolOutcome> ReadToolOutcome(const nlohmann::json& result);

}  // namespace rullama::server::mcp

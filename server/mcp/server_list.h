// The MCP servers that a user has named, in the file that editors have for them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "server/http/header_field.h"

namespace rullama::server::mcp {

inline constexpr size_t kMaxServers = 64;

// One server: a program whose standard streams carry the messages, or an address.
struct ToolServerEntry {
  std::string name;
  std::string command;  // a program, found by this program's PATH unless it has a slash; or empty
  std::vector<std::string> arguments = {};
  std::map<std::string, std::string> environment = {};  // in addition to that of all programs
  std::string folder = {};                              // to run in; empty: that of this program
  std::string url = {};                                 // empty: a program
  std::vector<HeaderField> headers = {};                // of each request to `url`

  [[nodiscard]] bool is_program() const { return !command.empty(); }
};

struct ToolServerList {
  std::vector<ToolServerEntry> servers;
  std::vector<std::string> ignored;  // members that mean nothing here: "mcpServers.files.icon"
};

// {"mcpServers": {name: {"command", "args", "env", "cwd"} or {"url", "headers"}}}. A server with
// "disabled": true is left out. Texts may name variables of the environment, "${NAME}" or
// "${env:NAME}", which `getenv` knows. Error mcp.servers (kUsage). Pure function.
Result<ToolServerList> ParseToolServers(std::string_view text, const char* (*getenv)(const char*));
// The same of a file. Also error io.open (kIo).
Result<ToolServerList> ReadToolServers(const std::string& path, const char* (*getenv)(const char*));

}  // namespace rullama::server::mcp

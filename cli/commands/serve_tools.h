// The MCP servers that `rullama serve --mcp` starts for its chat page.
#pragma once

#include <memory>
#include <string>

#include "cli/terminal/console.h"
#include "core/base/status.h"
#include "server/mcp/tool_servers.h"

namespace rullama::cli {

struct ServedTools {
  std::shared_ptr<server::mcp::ToolServers> servers;
  std::string token;  // of the chat page that may use them
};

// The servers of a file (server/mcp/server_list.h), not started yet. Errors: those of
// ReadToolServers(), io.random (kIo) if the system has no random numbers for the token.
Result<ServedTools> ReadTools(const std::string& file, Console& console);

// The address of the chat page with the token, which browsers do not send on.
std::string PageAddress(const std::string& host, int port, const std::string& token);

}  // namespace rullama::cli

// All MCP servers together: what the chat page is offered, and the calls that its user has
// agreed to.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/mcp/tool_server.h"

namespace rullama::server::mcp {

struct OfferedTool {
  std::string name;    // for models: "files__read", unique
  std::string server;  // as the user has named it
  Tool tool;
};
struct ServerFailure {
  std::string server;
  std::string text;
};
struct Offer {
  std::vector<OfferedTool> tools;
  std::vector<ServerFailure> failures;  // of servers whose tools are missing
  size_t left_out = 0;                  // tools beyond what a request may have
};

// Thread safety: all member functions from any thread.
class ToolServers {
 public:
  // `most`: tools that are offered together. `token`: see Admits().
  ToolServers(const std::vector<ToolServerEntry>& entries, const ToolServerOptions& options,
              size_t most, std::string token);
  ToolServers(const ToolServers&) = delete;
  ToolServers& operator=(const ToolServers&) = delete;
  ~ToolServers() { Stop(); }  // all at once, before one waits for its end

  [[nodiscard]] size_t size() const { return servers_.size(); }
  // Starts all servers without waiting for them.
  void Start();

  // Whether the bearer of a token may list and call tools.
  [[nodiscard]] bool Admits(std::string_view token) const;
  // Does not wait longer than `patience` for servers that are being started.
  Offer List(std::chrono::milliseconds patience);
  // Whether a tool of this name was offered.
  [[nodiscard]] bool Has(const std::string& name) const;
  // Errors: as ToolServer::Call().
  Result<ToolOutcome> Call(const std::string& name, const nlohmann::json& arguments,
                           const std::function<bool()>& ended);
  // Ends all calls.
  void Stop();
  // Ends the servers, after Stop().
  void End();

 private:
  struct Place {
    ToolServer* server = nullptr;
    std::string tool;  // as the server has it
  };

  const size_t most_;
  const std::string token_;
  std::vector<std::unique_ptr<ToolServer>> servers_;
  mutable std::mutex mutex_;              // guards offered_
  std::map<std::string, Place> offered_;  // by names for models
};

// The name of a tool for models, which take letters, digits, '_' and '-': "files__read". One that
// does not tell by itself which server and tool it means ends with a hash of both. Pure function.
std::string NameForModel(std::string_view server, std::string_view tool);

}  // namespace rullama::server::mcp

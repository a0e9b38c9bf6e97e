// One MCP server: it is started, asked for its tools and called, and started again when it has
// died.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/mcp/http_transport.h"
#include "server/mcp/message.h"
#include "server/mcp/server_list.h"
#include "server/mcp/transport.h"

namespace rullama::server::mcp {

struct ToolTimes {
  // A program may have to be downloaded first.
  std::chrono::milliseconds to_start{60'000};
  std::chrono::milliseconds to_list{30'000};
  std::chrono::milliseconds to_call{600'000};
  // One that has failed is not started again before.
  std::chrono::milliseconds to_rest{3'000};
};

struct ToolServerOptions {
  std::string version;  // of this program
  HttpSender send;      // of servers at an address
  Log log;              // lines that it writes, and why it failed
  ToolTimes times = {};
};

// The tools of a server, or why there are none.
struct ToolServerState {
  std::vector<Tool> tools = {};
  std::string failure = {};  // empty: none
  bool ready = false;        // else it is being started, unless it failed
};

// Thread safety: all member functions from any thread. A thread of its own starts the server and
// lists its tools.
class ToolServer {
 public:
  ToolServer(ToolServerEntry entry, ToolServerOptions options);
  ToolServer(const ToolServer&) = delete;
  ToolServer& operator=(const ToolServer&) = delete;
  ~ToolServer();

  [[nodiscard]] const std::string& name() const { return entry_.name; }
  // Starts the server without waiting for it.
  void Start();
  // Lists the tools anew if they may have changed, and starts the server if it is not there; but
  // does not wait for that beyond `until`.
  ToolServerState List(Clock::time_point until);
  // Errors: those of Transport, mcp.tool (kRuntime) with what the server says.
  Result<ToolOutcome> Call(const std::string& tool, const nlohmann::json& arguments,
                           const std::function<bool()>& ended);

  // Ends all calls.
  void Stop();
  // Ends the server, after Stop(). Once, or by the destructor.
  void End();

 private:
  struct Link;  // a connection that has been established

  void Work();
  // Brings the state up to date.
  void Refresh();
  // Refreshes a state that may be out of date, but does not wait for that longer than `wait` says.
  // The caller holds the lock.
  void WaitForRefresh(std::unique_lock<std::mutex>& lock, const Wait& wait);
  Result<std::shared_ptr<Link>> Connect();
  Status Greet(Link& link);
  Status ListTools(Link& link);
  Result<nlohmann::json> Ask(Link& link, std::string_view method, nlohmann::json params,
                             const Wait& wait);
  void Fail(const Error& error);
  // Whether the state may be out of date. The caller holds the lock.
  [[nodiscard]] bool IsOutOfDate() const;
  [[nodiscard]] Wait WaitFor(std::chrono::milliseconds limit,
                             std::function<bool()> ended = {}) const;

  const ToolServerEntry entry_;
  const ToolServerOptions options_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool wanted_ = false;  // a refresh
  bool refreshing_ = false;
  uint64_t refreshes_ = 0;
  std::shared_ptr<Link> link_;
  ToolServerState state_;
  Clock::time_point failed_at_;
  std::set<std::string> told_;  // of the thread: what the log has been told of tools
  std::thread worker_;
};

}  // namespace rullama::server::mcp

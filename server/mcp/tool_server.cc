#include "server/mcp/tool_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <set>
#include <utility>

#include "core/base/printable.h"
#include "server/mcp/process_transport.h"

namespace rullama::server::mcp {
namespace {

using nlohmann::json;

// Versions of the protocol that are spoken here. Lists of messages, which only some of them have,
// are read of all servers; the header MCP-Protocol-Version is sent to all, older ones ignore it.
constexpr std::array<std::string_view, 4> kVersions = {"2025-11-25", "2025-06-18", "2025-03-26",
                                                       "2024-11-05"};
constexpr size_t kMaxPages = 100;
constexpr size_t kMaxToolsOfServer = 1'000;
constexpr size_t kMaxTold = 100;
constexpr std::chrono::milliseconds kTimeToTell{1'000};

}  // namespace

struct ToolServer::Link {
  std::unique_ptr<Transport> transport;
  std::atomic<int64_t> next_id = 1;
  // Whether the list of tools has changed. Shared with the transport, which must not own the link.
  std::shared_ptr<std::atomic<bool>> stale = std::make_shared<std::atomic<bool>>(true);
  bool has_tools = false;
};

ToolServer::ToolServer(ToolServerEntry entry, ToolServerOptions options)
    : entry_(std::move(entry)), options_(std::move(options)), worker_([this] { Work(); }) {}

ToolServer::~ToolServer() {
  Stop();
  End();
}

void ToolServer::End() {
  if (worker_.joinable()) worker_.join();
}

void ToolServer::Start() {
  const std::lock_guard lock(mutex_);
  wanted_ = true;
  changed_.notify_all();
}

void ToolServer::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

Wait ToolServer::WaitFor(std::chrono::milliseconds limit, std::function<bool()> ended) const {
  return {.until = Clock::now() + limit, .ended = [this, ended = std::move(ended)] {
            return stopping_.load() || (ended && ended());
          }};
}

bool ToolServer::IsOutOfDate() const {
  if (!link_ || link_->transport->closed()) {
    return state_.failure.empty() || Clock::now() - failed_at_ > options_.times.to_rest;
  }
  return *link_->stale || !link_->transport->HearsOfChanges();
}

ToolServerState ToolServer::List(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  WaitForRefresh(lock, {.until = until});
  return state_;
}

void ToolServer::WaitForRefresh(std::unique_lock<std::mutex>& lock, const Wait& wait) {
  if (!IsOutOfDate()) return;
  if (!refreshing_) wanted_ = true;
  changed_.notify_all();
  const uint64_t before = refreshes_;
  while (refreshes_ == before && !stopping_ && wait.Check()) {
    changed_.wait_until(lock, std::min(wait.until, Clock::now() + kLookAtWait));
  }
}

Result<ToolOutcome> ToolServer::Call(const std::string& tool, const json& arguments,
                                     const std::function<bool()>& ended) {
  const Wait wait = WaitFor(options_.times.to_call, ended);
  const auto is_there = [this] { return link_ && !link_->transport->closed(); };
  std::unique_lock lock(mutex_);
  if (!is_there()) WaitForRefresh(lock, WaitFor(options_.times.to_start, ended));
  const std::shared_ptr<Link> link = is_there() ? link_ : nullptr;
  if (!link) {
    RL_RETURN_IF_ERROR(wait.Check());
    return MakeError(ErrorKind::kRuntime, "mcp.closed", "the server '{}' is not there: {}",
                     ShownName(entry_.name),
                     state_.failure.empty() ? "it has not started yet" : state_.failure);
  }
  lock.unlock();
  const auto result = Ask(*link, "tools/call", {{"name", tool}, {"arguments", arguments}}, wait);
  if (!result) {
    return tl::unexpected(
        Error(result.error()).WithContext(fmt::format("server '{}'", ShownName(entry_.name))));
  }
  return ReadToolOutcome(*result);
}

Result<json> ToolServer::Ask(Link& link, std::string_view method, json params, const Wait& wait) {
  const int64_t id = link.next_id++;
  const auto answer = link.transport->Ask(id, RequestText(id, method, std::move(params)), wait);
  if (answer && answer->error) {
    return MakeError(
        ErrorKind::kRuntime, "mcp.tool", "{} (error {})",
        answer->error->message.empty() ? "the server gives no reason" : answer->error->message,
        answer->error->code);
  }
  if (answer) return answer->result;
  const std::string& why = answer.error().id;
  if ((why == "mcp.timeout" || why == "mcp.cancelled") && method != "initialize") {
    const json about = {{"requestId", id}, {"reason", answer.error().message}};
    static_cast<void>(link.transport->Tell(NotificationText("notifications/cancelled", about),
                                           {.until = Clock::now() + kTimeToTell}));
  }
  return tl::unexpected(answer.error());
}

Status ToolServer::Greet(Link& link) {
  const Wait wait = WaitFor(options_.times.to_start);
  RL_ASSIGN_OR_RETURN(const json greeting,
                      Ask(link, "initialize",
                          {{"protocolVersion", kVersions.front()},
                           {"capabilities", json::object()},
                           {"clientInfo", {{"name", "rullama"}, {"version", options_.version}}}},
                          wait));
  const auto version = greeting.is_object() ? greeting.find("protocolVersion") : greeting.end();
  if (version == greeting.end() || !version->is_string() ||
      std::ranges::find(kVersions, version->get_ref<const std::string&>()) == kVersions.end()) {
    return MakeError(ErrorKind::kRuntime, "mcp.protocol",
                     "the server speaks version {} of MCP, expected one of {}",
                     version == greeting.end() ? "none" : ShownName(version->dump()),
                     fmt::join(kVersions, ", "));
  }
  link.transport->SetVersion(version->get<std::string>());
  const auto abilities = greeting.find("capabilities");
  link.has_tools =
      abilities != greeting.end() && abilities->is_object() && abilities->contains("tools");
  return link.transport->Tell(NotificationText("notifications/initialized", json::object()), wait);
}

Result<std::shared_ptr<ToolServer::Link>> ToolServer::Connect() {
  auto link = std::make_shared<Link>();
  const auto on_message = [stale = link->stale](const Message& message) -> std::string {
    if (message.kind == Message::Kind::kRequest) {
      if (message.method == "ping") return AnswerText(message.id, json::object());
      return RefusalText(message.id, {kMethodNotFound, "this client has no such method"});
    }
    if (message.method == "notifications/tools/list_changed") *stale = true;
    return {};
  };
  if (entry_.is_program()) {
    RL_ASSIGN_OR_RETURN(link->transport, ProcessTransport::Start(entry_, on_message, options_.log));
  } else {
    link->transport = std::make_unique<HttpTransport>(entry_, options_.send, on_message);
  }
  RL_RETURN_IF_ERROR(Greet(*link));
  return link;
}

Status ToolServer::ListTools(Link& link) {
  *link.stale = false;  // from now on a change makes it so again
  std::vector<Tool> tools;
  std::set<std::string> names;
  std::set<std::string> cursors;
  json params = json::object();
  const Wait wait = WaitFor(options_.times.to_list);
  for (bool more = link.has_tools; more;) {
    RL_ASSIGN_OR_RETURN(const json result, Ask(link, "tools/list", params, wait));
    RL_ASSIGN_OR_RETURN(ToolPage page, ReadToolPage(result));
    for (const std::string& why : page.refused) {
      if (told_.size() < kMaxTold && told_.insert(why).second)
        options_.log(why + " and is left out");
    }
    for (Tool& tool : page.tools) {
      if (names.insert(tool.name).second) tools.push_back(std::move(tool));
    }
    more = !page.next.empty();
    if (cursors.size() == kMaxPages || tools.size() > kMaxToolsOfServer ||
        (more && !cursors.insert(page.next).second)) {
      return MakeError(ErrorKind::kRuntime, "mcp.protocol",
                       "the list of tools does not end, or has more than {} pages or {} tools",
                       kMaxPages, kMaxToolsOfServer);
    }
    params["cursor"] = page.next;
  }
  const std::lock_guard lock(mutex_);
  state_ = {.tools = std::move(tools), .failure = {}, .ready = true};
  return OkStatus();
}

void ToolServer::Fail(const Error& error) {
  std::shared_ptr<Link> dropped;  // which ends outside of the lock
  const std::lock_guard lock(mutex_);
  dropped = std::exchange(link_, nullptr);
  state_ = {.tools = {}, .failure = error.ToString(), .ready = false};
  failed_at_ = Clock::now();
}

void ToolServer::Refresh() {
  std::shared_ptr<Link> link;
  std::shared_ptr<Link> closed;  // which ends outside of the lock
  {
    const std::lock_guard lock(mutex_);
    if (link_ && link_->transport->closed()) closed = std::exchange(link_, nullptr);
    link = link_;
  }
  closed.reset();
  if (!link) {
    auto connected = Connect();
    if (!connected) {
      options_.log(connected.error().ToString());
      return Fail(connected.error());
    }
    link = *std::move(connected);
  }
  if (const Status listed = ListTools(*link); !listed) {
    options_.log(listed.error().ToString());
    return Fail(listed.error());
  }
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
}

void ToolServer::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!std::exchange(wanted_, false)) {
      changed_.wait(lock, [this] { return wanted_ || stopping_; });
      continue;
    }
    refreshing_ = true;
    lock.unlock();
    try {
      Refresh();
    } catch (const std::exception& failure) {  // std::system_error or std::bad_alloc
      Fail({ErrorKind::kRuntime, "mcp.start", failure.what()});
    }
    lock.lock();
    refreshing_ = false;
    ++refreshes_;
    changed_.notify_all();
  }
  std::shared_ptr<Link> last = std::exchange(link_, nullptr);
  lock.unlock();
  last.reset();  // calls that still run hold it too; they end soon
}

}  // namespace rullama::server::mcp

#include "server/mcp/tool_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/sha256.h"

namespace rullama::server::mcp {
namespace {

constexpr size_t kMaxModelNameBytes = 64;
constexpr size_t kHashDigits = 16;
constexpr std::string_view kBetween = "__";

bool IsHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// Whether a name could be one that ends with a hash.
bool HasHash(std::string_view name) {
  return name.size() > kHashDigits && name[name.size() - kHashDigits - 1] == '_' &&
         std::ranges::all_of(name.substr(name.size() - kHashDigits), IsHexDigit);
}

}  // namespace

std::string NameForModel(std::string_view server, std::string_view tool) {
  std::string name = fmt::format("{}{}{}", server, kBetween, tool);
  // "a__b__c" would not say whether "b" belongs to the server or to the tool.
  bool changed = name.find(kBetween) != server.size() || name.rfind(kBetween) != server.size() ||
                 HasHash(name);
  for (char& c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-';
    if (!fits) c = '_';
    changed = changed || !fits;
  }
  if (name.size() <= kMaxModelNameBytes && !changed) return name;
  const std::string whole = fmt::format("{}:{}{}", server.size(), server, tool);
  const std::string hash = HexText(Sha256(whole)).substr(0, kHashDigits);
  return fmt::format("{}_{}", name.substr(0, kMaxModelNameBytes - kHashDigits - 1), hash);
}

ToolServers::ToolServers(const std::vector<ToolServerEntry>& entries,
                         const ToolServerOptions& options, size_t most, std::string token)
    : most_(most), token_(std::move(token)) {
  for (const ToolServerEntry& entry : entries) {
    ToolServerOptions own = options;
    own.log = [log = options.log, name = entry.name](std::string_view line) {
      log(fmt::format("tools of '{}': {}", name, line));
    };
    servers_.push_back(std::make_unique<ToolServer>(entry, std::move(own)));
  }
}

bool ToolServers::Admits(std::string_view token) const {
  if (token.size() != token_.size()) return false;
  // Takes the same time for every wrong token.
  unsigned different = 0;
  for (size_t i = 0; i < token.size(); ++i) {
    different |= static_cast<unsigned char>(token[i]) ^ static_cast<unsigned char>(token_[i]);
  }
  return different == 0;
}

Offer ToolServers::List(std::chrono::milliseconds patience) {
  const Clock::time_point until = Clock::now() + patience;
  Offer offer;
  std::map<std::string, Place> offered;
  for (const auto& server : servers_) {
    ToolServerState state = server->List(until);
    if (!state.ready) {
      offer.failures.push_back(
          {server->name(), state.failure.empty() ? "is being started" : state.failure});
    }
    for (Tool& tool : state.tools) {
      std::string name = NameForModel(server->name(), tool.name);
      if (offer.tools.size() == most_) {
        ++offer.left_out;
      } else if (offered.try_emplace(name, Place{server.get(), tool.name}).second) {
        offer.tools.push_back({std::move(name), server->name(), std::move(tool)});
      }
    }
  }
  const std::lock_guard lock(mutex_);
  offered_ = std::move(offered);
  return offer;
}

bool ToolServers::Has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return offered_.contains(name);
}

Result<ToolOutcome> ToolServers::Call(const std::string& name, const nlohmann::json& arguments,
                                      const std::function<bool()>& ended) {
  Place place;
  {
    const std::lock_guard lock(mutex_);
    const auto found = offered_.find(name);
    if (found == offered_.end()) {
      return MakeError(ErrorKind::kRuntime, "mcp.tool", "no tool of this name is offered");
    }
    place = found->second;
  }
  return place.server->Call(place.tool, arguments, ended);
}

void ToolServers::Start() {
  for (const auto& server : servers_) server->Start();
}

void ToolServers::Stop() {
  for (const auto& server : servers_) server->Stop();
}

void ToolServers::End() {
  for (const auto& server : servers_) server->End();
}

}  // namespace rullama::server::mcp

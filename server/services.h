// Objects that the endpoints share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "engine/scheduling/snapshot_store.h"
#include "server/mcp/tool_servers.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/running_requests.h"
#include "server/slot_folder.h"
#include "server/web_folder.h"

namespace rullama::server {

// How a download proceeds: a sentence, with figures while a file is on its way.
struct PullState {
  std::string status;
  std::string digest = {};  // empty: no figures
  uint64_t total = 0;
  uint64_t completed = 0;
};
// Downloads a model into a store and tells of each state. `on_state` returns false if the client
// has left.
using PullFunction = std::function<Status(const std::string& name,
                                          const std::function<bool(const PullState&)>& on_state)>;

struct ApiOptions {
  std::string version;
  RequestLimits limits = {};
  int64_t max_body_bytes = 64 << 20;
  int64_t max_loaded_models = 1;
  std::vector<ModelAlias> aliases = {};
  // Endpoints that may be switched off.
  bool page = true;
  bool web = false;
  bool metrics = true;
  bool embeddings = true;
  bool slots = true;
  bool tools = false;
  std::shared_ptr<const WebFolder> web_folder = {};     // of `web`
  std::shared_ptr<SnapshotStore> snapshots = {};        // of prompts on disk; null: none
  std::shared_ptr<SlotFolder> slot_folder = {};         // null: slots are not saved
  std::shared_ptr<mcp::ToolServers> tool_servers = {};  // of `tools`
  bool allow_pull = false;
  PullFunction pull = {};                               // of allow_pull
  std::function<int64_t()> connections = {};            // how many are open
  std::function<void(std::string_view line)> log = {};  // one line for each request
  // One line of JSON for each request with a body, which is in it as text. Empty: texts are logged
  // nowhere.
  std::function<void(std::string_view line)> log_prompt = {};
};

// Thread safety: as its members.
struct Services {
  const ApiOptions& options;
  Models& models;
  Metrics& metrics;
  RunningRequests& running;
};

}  // namespace rullama::server

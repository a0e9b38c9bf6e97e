// Models that are to be downloaded: which one a name means, and the transfer with the program's
// terminal and signals. Thread safety: none; used by main's thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "cli/terminal/pull_view.h"
#include "core/base/status.h"
#include "core/ollama/name.h"
#include "downloads/file_fetch.h"
#include "downloads/hub_files.h"
#include "downloads/hub_name.h"
#include "downloads/hub_places.h"
#include "downloads/hub_plan.h"
#include "downloads/pull_plan.h"

namespace rullama::cli {

// One of the two is there.
struct RemoteName {
  std::optional<downloads::HubName> hub;
  std::optional<OllamaName> registry;
};
// "hf.co/USER/REPO:QUANT" or a name of a registry. Error pull.name (kUsage).
Result<RemoteName> ParseRemoteName(std::string_view text);

struct PullSettings {
  std::string revision = downloads::kMainRevision;
  downloads::HubChoice choice = {};
  downloads::PullOptions options = {};
};

// The environment of the process.
downloads::HubPlaces ProcessHubPlaces();
// The store that models of a registry are written to.
std::filesystem::path WritableOllamaStore();

// Ctrl-C ends it, and `view` shows it; with `verbose` also each request. `view` outlives the
// result.
downloads::PullHooks ProcessPullHooks(PullView& view, bool verbose);

// Plans a pull and carries it out. With HF_HUB_OFFLINE, the model in the cache. Errors:
// run.cancelled, pull.*, file.*.
class Puller {
 public:
  Puller(const RemoteName& name, PullSettings settings, downloads::PullHooks hooks);

  // Without the network if the Hub may not be asked: the plan then has the files in the cache.
  Result<downloads::PullPlan> Plan();
  Status CarryOut(const downloads::PullPlan& plan);

 private:
  RemoteName name_;
  PullSettings settings_;
  downloads::PullHooks hooks_;
  downloads::HttpClient client_;
  downloads::PullConnection connection_;
};

}  // namespace rullama::cli

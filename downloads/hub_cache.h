// The models of the Hub that are on the disk: found, listed and removed without the network. The
// cache is shared with huggingface_hub: only what a listed model needs is touched.
// Thread safety: functions of their arguments and the file system.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "downloads/hub_files.h"
#include "downloads/hub_name.h"
#include "downloads/hub_places.h"
#include "downloads/pull_plan.h"

namespace rullama::downloads {

// The model in the snapshot of `revision` that `choice` means, if all of it is there.
std::optional<ModelPaths> FindInHubCache(const HubName& name, const std::string& revision,
                                         const HubChoice& choice, const HubPlaces& places);

struct CachedHubModel {
  HubName name;  // with a quant, where the file has one
  std::filesystem::path model;
  uint64_t bytes = 0;  // of all parts
  std::time_t modified = 0;
};
// The models of all snapshots, each once, newest first.
std::vector<CachedHubModel> ListHubCache(const HubPlaces& places);

// Removes the links to the GGUF files of a repository, or to those of the quant, in all snapshots;
// then the blobs that no other link leads to, without a quant also partial downloads, and the
// folders that are empty. Errors: rm.not_found, file.write, run.cancelled while another program
// downloads one of them.
Status RemoveFromHubCache(const HubName& name, const HubPlaces& places, const PullHooks& hooks);

}  // namespace rullama::downloads

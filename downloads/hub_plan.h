// Plans the download of a model of the Hub: asks for the commit and its files, chooses, and says
// where each goes in the cache that is shared with huggingface_hub.
#pragma once

#include <string>

#include "downloads/file_fetch.h"
#include "downloads/hub_files.h"
#include "downloads/hub_name.h"
#include "downloads/hub_places.h"
#include "downloads/pull_plan.h"

namespace rullama::downloads {

inline constexpr const char* kMainRevision = "main";

// Writes nothing. Errors: run.cancelled, pull.*.
Result<PullPlan> PlanHubPull(const HubName& name, const std::string& revision,
                             const HubChoice& choice, const HubPlaces& places,
                             PullConnection& connection);

}  // namespace rullama::downloads

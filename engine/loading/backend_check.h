// Whether a backend can run a model, found out without loading a weight.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "engine/host_hooks.h"
#include "engine/loading/backend_setup.h"
#include "models/common/model.h"

namespace rullama {

// Whether the devices run the model with the types of its KV cache, if they run it with any. Builds
// graphs and loads no weights. Error backend.kv_dtype, which names the types that they run.
Status CheckCacheTypes(const Model& model, const Config& config, const BackendDevices& devices);

// Opens the devices that the configuration names and asks them for all ops of the model. Blocks
// while drivers start. Errors: those of OpenDevices, PlaceLayers and CheckSupport.
Status CheckBackend(const Model& model, const Config& config,
                    const std::vector<std::string>& plugin_paths, const HostHooks& hooks,
                    Notices& notices);

}  // namespace rullama

// The environment variables rullama reads, and no others.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace rullama {

struct EnvironmentOverrides {
  std::optional<std::string> config_path;  // RULLAMA_CONFIG: used when there is no --config
  std::optional<std::string> backend;      // RULLAMA_BACKEND: backend.name
  // RULLAMA_PLUGIN_PATH, split at colons: searched after --plugin and plugins.paths.
  std::vector<std::string> plugin_paths;
  // RULLAMA_API_KEY, split at commas: keys of clients of `rullama serve`.
  std::vector<std::string> api_keys;
  std::optional<std::string> log_level;  // RULLAMA_LOG: trace, debug, info, warn, error or off
};

// `getenv` is std::getenv or a stand-in for it: null for a variable that is not set. An empty
// variable counts as not set. In a privileged process (AT_SECURE) RULLAMA_CONFIG and
// RULLAMA_PLUGIN_PATH are ignored, since both name code to load.
// Error: config.environment (kUsage) for a log level that does not exist.
Result<EnvironmentOverrides> ReadEnvironment(
    const std::function<const char*(const char* name)>& getenv, bool privileged);

}  // namespace rullama

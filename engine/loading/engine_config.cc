#include "engine/loading/engine_config.h"

#include <string>

namespace rullama {

Result<LayeredConfig> ConfigOf(const EngineOptions& options) {
  LayeredConfig config;
  if (!options.config_file.empty()) RL_RETURN_IF_ERROR(config.ApplyFile(options.config_file));
  const auto set = [&config](const std::string& key, const std::string& value) -> Status {
    return config.Set(key, value, Origin::kFlag, "settings");
  };
  for (const Setting& setting : options.settings) {
    RL_RETURN_IF_ERROR(set(setting.key, setting.value));
  }
  if (!options.adapters.empty()) {
    RL_RETURN_IF_ERROR(
        config.SetList("model.adapters", options.adapters, Origin::kFlag, "adapters"));
  }
  if (!options.model.empty()) RL_RETURN_IF_ERROR(set("model.path", options.model));
  if (!options.backend.empty()) RL_RETURN_IF_ERROR(set("backend.name", options.backend));
  RL_RETURN_IF_ERROR(config.Finish());
  return config;
}

}  // namespace rullama

// The parts of loader.h and registry.h that know plugin files, in builds for systems without shared
// libraries (RULLAMA_PLUGIN_FILES is OFF): the only backends are the built-in ones.
#include <filesystem>

#include "core/plugin/loader.h"
#include "core/plugin/registry.h"

namespace rullama {

RegistryOptions RegistryOptions::FromProcess() { return {}; }

Result<rl_plugin_query_fn> LoadQueryFunction(const std::filesystem::path& path) {
  return MakeError(ErrorKind::kBackend, "plugin.load",
                   "cannot load plugin '{}': this build loads no plugin files; use a backend that "
                   "is built in",
                   path.string());
}

}  // namespace rullama

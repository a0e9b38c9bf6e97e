// Finds plugins and devices. The search order is: --plugin, `plugins` of the configuration,
// RULLAMA_PLUGIN_PATH, <program>/../lib/rullama, the build tree (for programs that never leave it),
// built in. The first plugin of a name wins, but none may take that of a built-in one. The current
// directory is never searched, nor is a directory in which others may put files.
//
// Thread safety: used by one thread at a time. Ownership: plugins are shared with the devices
// opened from them.
//
// The folder, from a file to a device: elf_file.h checks that the file is complete, loader.h opens
// it, handshake.h exchanges the tables, device.h checks every answer of the plugin, so that the
// rest of the core can rely on it. graph_flatten.h turns a Graph into the arrays of the ABI,
// call_watch.h reports calls that take too long.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/plugin/device.h"
#include "core/plugin/host_table.h"

namespace rullama {

struct RegistryOptions {
  // Files or directories named by the user. Relative ones are relative to the current directory.
  std::vector<std::filesystem::path> flag_paths;    // --plugin
  std::vector<std::filesystem::path> config_paths;  // `plugins` in the configuration
  // RULLAMA_PLUGIN_PATH: absolute directories separated by ':'.
  std::string environment;
  bool privileged = false;  // setuid or the like: the environment is not to be trusted
  std::filesystem::path program_directory;  // where the program lies; empty: do not look near it
  // Folders of libraries next to the program's folder, relative to their common parent. Plugins lie
  // in `rullama` of each.
  std::vector<std::filesystem::path> library_folders = {"lib"};
  // Where librullama lies, if this code is part of it: plugins lie in `rullama` next to it, and
  // those of the program's installation are not looked for.
  std::filesystem::path library_directory;
  std::filesystem::path build_directory;  // set by programs of the build tree only

  // environment, privileged and the directories of this process.
  static RegistryOptions FromProcess();
};

enum class PluginState { kLoaded, kRefused, kShadowed };

// One thing found on the way; what `rullama backends` prints.
struct PluginListing {
  std::string source;          // "--plugin", "RULLAMA_PLUGIN_PATH", ...
  std::filesystem::path path;  // the file, or a directory that was refused; empty if built in
  PluginState state = PluginState::kRefused;
  std::string name;                // from the plugin, or from the file name
  std::optional<Error> error;      // kRefused
  std::string shadowed_by;         // kShadowed: origin of the plugin that won
  std::shared_ptr<Plugin> plugin;  // kLoaded
};

struct DeviceChoice {
  uint32_t index = 0;
  DeviceDescription description;
};

class Registry {
 public:
  Registry(RegistryOptions options, std::shared_ptr<PluginHost> host);

  // A backend linked into the program, e.g. the reference. Last in the search order. `name` is what
  // the plugin calls itself.
  void RegisterBuiltIn(std::string name, rl_plugin_query_fn query);

  // Returns everything found, in search order; loads plugins that have not been loaded yet.
  const std::vector<PluginListing>& List();

  // The names that built-in backends and plugin files promise; loads nothing. A name may be there
  // twice.
  [[nodiscard]] std::vector<std::string> Names() const;

  // Loads every plugin file that the user named (--plugin, `plugins` of the configuration). The
  // error of the first such file or directory that cannot be used: another plugin in its place
  // would be used without a word.
  Status CheckNamedByUser();

  // The plugin of this name; loads files whose name says so and files given by the user. Errors:
  // those of CheckNamedByUser; backend.unknown with the usable backends; or why the only plugin of
  // that name was refused.
  Result<std::shared_ptr<Plugin>> Find(std::string_view name);

  // The device named by `selector`: an index, or part of a name (any case). Empty: the first device
  // that is not a software rasteriser, which has to be asked for.
  // Errors: device.none with the plugin's reason and the usable backends, device.unknown,
  // device.ambiguous, device.software.
  Result<DeviceChoice> SelectDevice(const Plugin& plugin, std::string_view selector);

  // Gives up all loaded plugins, the last loaded first. After the last device of this registry was
  // closed; the registry and its plugins are not to be used afterwards.
  void Shutdown();

 private:
  // A place where a plugin may be; becomes a listing when it is tried.
  struct Candidate {
    PluginListing listing;
    rl_plugin_query_fn query = nullptr;  // built in
    bool named_by_file = false;          // the file name promises the plugin's name
    bool named_by_user = false;          // not found in a directory but given itself
    bool tried = false;
  };

  void Discover();
  void AddUserPath(std::string_view source, const std::filesystem::path& path);
  void AddDirectory(std::string_view source, const std::filesystem::path& directory, bool optional);
  void AddEnvironment();
  void AddRefused(std::string_view source, const std::filesystem::path& path, std::string reason);
  void Try(Candidate& candidate);
  std::string UsableBackends();
  std::string UnsearchedPlaces() const;

  RegistryOptions options_;
  std::shared_ptr<PluginHost> host_;
  std::vector<Candidate> candidates_;  // built-in ones follow those of the search
  std::vector<PluginListing> listings_;
  std::vector<std::shared_ptr<Plugin>> loaded_;  // in the order of loading
};

}  // namespace rullama

#include "core/plugin/registry.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/plugin/search_path.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFromFlag = "--plugin";
constexpr std::string_view kFromConfig = "plugins in the configuration";
constexpr std::string_view kFromEnvironment = "RULLAMA_PLUGIN_PATH";
constexpr std::string_view kFromInstallation = "installation";
constexpr std::string_view kFromBuildTree = "build tree";
constexpr std::string_view kBuiltIn = "built in";

}  // namespace

Registry::Registry(RegistryOptions options, std::shared_ptr<PluginHost> host)
    : options_(std::move(options)), host_(std::move(host)) {
  Discover();
}

void Registry::RegisterBuiltIn(std::string name, rl_plugin_query_fn query) {
  Candidate candidate;
  candidate.listing.source = kBuiltIn;
  candidate.listing.name = std::move(name);
  candidate.named_by_file = true;
  candidate.query = query;
  candidates_.push_back(std::move(candidate));
}

void Registry::Discover() {
  for (const fs::path& path : options_.flag_paths) AddUserPath(kFromFlag, path);
  for (const fs::path& path : options_.config_paths) AddUserPath(kFromConfig, path);
  AddEnvironment();
  if (!options_.library_directory.empty()) {
    AddDirectory(kFromInstallation, options_.library_directory / "rullama", true);
  } else if (!options_.program_directory.empty()) {
    for (const fs::path& folder : options_.library_folders) {
      const fs::path near = options_.program_directory / ".." / folder / "rullama";
      AddDirectory(kFromInstallation, near.lexically_normal(), true);
    }
  }
  if (!options_.build_directory.empty()) {
    AddDirectory(kFromBuildTree, options_.build_directory, true);
  }
}

void Registry::AddUserPath(std::string_view source, const fs::path& path) {
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code);
  if (path.empty() || code) {
    AddRefused(source, path, fmt::format("'{}' is not a path", path.string()));
    return;
  }
  if (fs::is_directory(absolute, code)) {
    AddDirectory(source, absolute, false);
    return;
  }
  if (const auto why = WhyUntrustedFile(absolute)) {
    AddRefused(source, absolute, *why);
    return;
  }
  Candidate candidate;
  candidate.named_by_user = true;
  candidate.listing.source = source;
  candidate.listing.path = absolute;
  candidate.listing.name = BackendNameOf(absolute).value_or(absolute.stem().string());
  candidates_.push_back(std::move(candidate));
}

void Registry::AddDirectory(std::string_view source, const fs::path& directory, bool optional) {
  std::error_code code;
  if (optional && !fs::exists(directory, code)) return;
  if (const auto why = WhyUntrustedDirectory(directory)) {
    AddRefused(source, directory, *why);
    return;
  }
  std::string error;
  const std::vector<fs::path> files = PluginFilesIn(directory, &error);
  if (!error.empty()) {
    AddRefused(source, directory, error);
    return;
  }
  for (const fs::path& file : files) {
    Candidate candidate;
    candidate.listing.source = source;
    candidate.listing.path = file;
    candidate.listing.name = *BackendNameOf(file);
    candidate.named_by_file = true;
    candidates_.push_back(std::move(candidate));
  }
}

void Registry::AddEnvironment() {
  if (options_.environment.empty()) return;
  if (options_.privileged) {
    AddRefused(kFromEnvironment, {},
               "the variable is ignored because this program runs with raised privileges");
    return;
  }
  for (const fs::path& path : SplitPathList(options_.environment)) {
    if (path.is_absolute()) {
      AddDirectory(kFromEnvironment, path, false);
    } else {
      AddRefused(kFromEnvironment, path,
                 fmt::format("'{}' is relative, and the current directory is never searched; give "
                             "the absolute path",
                             path.string()));
    }
  }
}

void Registry::AddRefused(std::string_view source, const fs::path& path, std::string reason) {
  Candidate candidate;
  candidate.listing.source = source;
  candidate.listing.path = path;
  candidate.listing.state = PluginState::kRefused;
  candidate.listing.error = Error{ErrorKind::kBackend, "plugin.path", std::move(reason)};
  candidate.tried = true;
  candidate.named_by_user = source == kFromFlag || source == kFromConfig;
  candidates_.push_back(std::move(candidate));
}

void Registry::Try(Candidate& candidate) {
  if (candidate.tried) return;
  candidate.tried = true;
  PluginListing& listing = candidate.listing;
  const auto refuse = [&](Error error) {
    listing.state = PluginState::kRefused;
    listing.error = std::move(error);
  };
  const bool foreign = listing.source == kFromFlag || listing.source == kFromConfig ||
                       listing.source == kFromEnvironment;
  if (foreign) host_->NoteForeignPlugin(listing.path.string(), {});
  auto loaded = candidate.query != nullptr
                    ? Plugin::FromQuery(candidate.query, std::string(kBuiltIn), host_)
                    : Plugin::Load(listing.path, host_);
  if (!loaded) return refuse(std::move(loaded).error());
  const std::shared_ptr<Plugin>& plugin = *loaded;
  if (foreign) host_->NoteForeignPlugin(listing.path.string(), plugin->name());
  if (candidate.named_by_file && plugin->name() != listing.name) {
    return refuse({ErrorKind::kBackend, "plugin.contract",
                   fmt::format("plugin '{}' calls itself '{}', expected '{}' as in its file name",
                               plugin->origin(), plugin->name(), listing.name)});
  }
  const bool shadows =
      candidate.query == nullptr && std::ranges::any_of(candidates_, [&](const Candidate& other) {
        return other.query != nullptr && other.listing.name == plugin->name();
      });
  if (shadows) {
    return refuse({ErrorKind::kBackend, "plugin.reserved",
                   fmt::format("plugin '{}' calls itself '{}', which is the name of a backend that "
                               "is built into this program; rename the plugin",
                               plugin->origin(), plugin->name())});
  }
  listing.name = plugin->name();
  const auto winner = std::ranges::find(loaded_, plugin->name(), &Plugin::name);
  if (winner != loaded_.end()) {
    listing.state = PluginState::kShadowed;
    listing.shadowed_by = (*winner)->origin();
    return;
  }
  listing.state = PluginState::kLoaded;
  listing.plugin = plugin;
  loaded_.push_back(plugin);
}

const std::vector<PluginListing>& Registry::List() {
  listings_.clear();
  for (Candidate& candidate : candidates_) {
    Try(candidate);
    listings_.push_back(candidate.listing);
  }
  return listings_;
}

std::vector<std::string> Registry::Names() const {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_) {
    if (candidate.named_by_file) names.push_back(candidate.listing.name);
  }
  return names;
}

Status Registry::CheckNamedByUser() {
  for (Candidate& candidate : candidates_) {
    if (!candidate.named_by_user) continue;
    Try(candidate);
    const PluginListing& listing = candidate.listing;
    if (listing.state != PluginState::kRefused) continue;
    return tl::unexpected(
        Error(*listing.error)
            .WithContext(fmt::format("{} names a plugin that cannot be used", listing.source)));
  }
  return OkStatus();
}

Result<std::shared_ptr<Plugin>> Registry::Find(std::string_view name) {
  RL_RETURN_IF_ERROR(CheckNamedByUser());
  const Candidate* refused = nullptr;
  for (Candidate& candidate : candidates_) {
    // A file whose name promises another backend need not be opened to be passed over.
    if (candidate.named_by_file && candidate.listing.name != name) continue;
    Try(candidate);
    if (candidate.listing.name != name) continue;
    if (candidate.listing.state == PluginState::kLoaded) return candidate.listing.plugin;
    if (candidate.listing.error && refused == nullptr) refused = &candidate;
  }
  if (refused != nullptr) {
    Error error = *refused->listing.error;
    error.message += fmt::format("; usable backends: {}", UsableBackends());
    return tl::unexpected<Error>(std::move(error));
  }
  return MakeError(ErrorKind::kBackend, "backend.unknown",
                   "there is no backend '{}'; usable backends: {}; `rullama backends` shows where "
                   "they are looked for{}",
                   name, UsableBackends(), UnsearchedPlaces());
}

// Places in which the wanted plugin may be, but which could not be looked through.
std::string Registry::UnsearchedPlaces() const {
  std::string text;
  for (const Candidate& candidate : candidates_) {
    const PluginListing& listing = candidate.listing;
    if (listing.error && listing.error->id == "plugin.path") {
      text += fmt::format("; {}: {}", listing.source, listing.error->message);
    }
  }
  return text;
}

std::string Registry::UsableBackends() {
  std::string text;
  for (const PluginListing& listing : List()) {
    if (listing.state != PluginState::kLoaded) continue;
    const auto list = listing.plugin->ListDevices();
    if (!list || list->devices.empty()) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", listing.name);
  }
  return text.empty() ? "none" : text;
}

void Registry::Shutdown() {
  std::for_each(loaded_.rbegin(), loaded_.rend(),
                [](const std::shared_ptr<Plugin>& plugin) { plugin->Shutdown(); });
  loaded_.clear();
}

}  // namespace rullama

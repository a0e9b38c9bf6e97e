#include "engine/loading/backend_setup.h"

#include <fmt/format.h>
#include <rullama/sdk/processor.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/config/device_name.h"
#include "core/reference/reference_backend.h"
#include "core/runtime/device_program.h"
#include "engine/loading/auto_settings.h"

#define RL_BUILT_IN(name)                                                                      \
  extern "C" int32_t rullama_query_##name(const rl_host_v1* host, const rl_plugin_v1** plugin, \
                                          rl_error* error);
RULLAMA_BUILTIN_ROWS
#undef RL_BUILT_IN

namespace rullama {
namespace {

constexpr const char* kHostBackend = "cpu";
constexpr const char* kAutoBackend = "auto";

#define RL_BUILT_IN(name) {#name, rullama_query_##name},
// The names and query functions of the backends of RULLAMA_BUILTIN_BACKENDS. The reference comes
// last, in every build.
constexpr std::pair<const char*, rl_plugin_query_fn> kBuiltInBackends[] = {
    RULLAMA_BUILTIN_ROWS{kReferenceBackend, ReferencePluginQuery}};
#undef RL_BUILT_IN

// The rank of a device for `auto`; a device of rank 0 is never chosen.
int RankOf(const DeviceDescription& device) {
  switch (device.type) {
    case RL_DEVICE_GPU:
      return 3;
    case RL_DEVICE_INTEGRATED_GPU:
      return 2;
    case RL_DEVICE_CPU:
      return 1;
    default:
      return 0;
  }
}

// The backend that `auto` takes if several have devices of one rank: the one that is fastest on
// most of them (docs/performance.md).
constexpr const char* kPreferredBackend = "vulkan";

struct Choice {
  std::string name;  // for messages
  std::shared_ptr<Plugin> plugin;
  uint32_t device = 0;
  std::string device_name;
  std::string driver;
};

Result<Choice> ChooseBest(Registry& registry) {
  RL_RETURN_IF_ERROR(registry.CheckNamedByUser());
  Choice best;
  std::pair<int, bool> best_rank;
  for (const PluginListing& listing : registry.List()) {
    // The reference is for comparing, not for use.
    if (listing.state != PluginState::kLoaded || listing.name == kReferenceBackend) continue;
    const auto list = listing.plugin->ListDevices();
    if (!list) continue;
    for (size_t i = 0; i < list->devices.size(); ++i) {
      const std::pair rank(RankOf(list->devices[i]), listing.name == kPreferredBackend);
      if (rank.first == 0 || rank <= best_rank) continue;
      best_rank = rank;
      best = {listing.name, listing.plugin, static_cast<uint32_t>(i), list->devices[i].name,
              list->devices[i].driver};
    }
  }
  if (best_rank.first == 0) {
    return MakeError(ErrorKind::kBackend, "backend.none",
                     "`--backend auto` found no usable device; see `rullama backends`");
  }
  return best;
}

Result<Choice> ChooseNamed(Registry& registry, const DeviceName& wanted) {
  Choice choice;
  RL_ASSIGN_OR_RETURN(choice.plugin, registry.Find(wanted.backend));
  RL_ASSIGN_OR_RETURN(const DeviceChoice device,
                      registry.SelectDevice(*choice.plugin, wanted.device));
  choice.name = choice.plugin->name();
  choice.device = device.index;
  choice.device_name = device.description.name;
  choice.driver = device.description.driver;
  return choice;
}

// The devices that share the layers of the model: those of the list, or the one that is named.
Result<std::vector<Choice>> Choose(Registry& registry, const BackendConfig& config,
                                   Notices& notices) {
  std::vector<Choice> choices;
  for (const DeviceSetting& device : config.devices) {
    RL_ASSIGN_OR_RETURN(choices.emplace_back(),
                        ChooseNamed(registry, ParseDeviceName(device.name)));
    choices.back().name = device.name;
  }
  if (!choices.empty()) return choices;
  if (config.name == kAutoBackend) {
    RL_ASSIGN_OR_RETURN(choices.emplace_back(), ChooseBest(registry));
    notices.Note(fmt::format("--backend auto chose '{}' on {}", choices.front().plugin->name(),
                             choices.front().device_name));
    return choices;
  }
  RL_ASSIGN_OR_RETURN(choices.emplace_back(), ChooseNamed(registry, {config.name, config.device}));
  return choices;
}

bool IsHost(const std::string& backend) {
  return backend == kHostBackend || backend == kReferenceBackend;
}

// More threads than processors wait for each other at every barrier of a step.
void WarnOfManyThreads(const BackendConfig& config, Notices& notices) {
  int threads = 0;  // the most of a device
  for (size_t i = 0; i < std::max<size_t>(1, config.devices.size()); ++i) {
    const auto options = OptionsOf(config, i);
    const auto option = options.find("threads");
    if (option == options.end()) continue;
    int of_device = 0;
    const std::string& text = option->second;
    std::from_chars(text.data(), text.data() + text.size(), of_device);
    threads = std::max(threads, of_device);
  }
  const int processors = sdk::AllowedProcessors();
  if (threads <= processors) return;
  notices.Warn(fmt::format(
      "{} threads share {} processor{} and will mostly wait for each other; usual is one thread "
      "per core, which is what the cpu backend takes without -t",
      threads, processors, processors == 1 ? "" : "s"));
}

Result<std::unique_ptr<Device>> OpenHost(Registry& registry) {
  RL_ASSIGN_OR_RETURN(const auto plugin, registry.Find(kHostBackend));
  return plugin->Open(0, {});
}

// Finds or opens the cpu device for ops that may or must leave the others.
Status AddHost(Registry& registry, const PlacementConfig& placement, BackendDevices& opened,
               Notices& notices) {
  const bool needed = placement.host_expert_layers > 0;
  if (!needed && placement.fallback == FallbackPolicy::kDeny) return OkStatus();
  const auto listed =
      std::ranges::find(opened.identities, kHostBackend, &std::pair<std::string, uint32_t>::first);
  if (listed != opened.identities.end()) {
    opened.policy.host_device = static_cast<int>(listed - opened.identities.begin());
    return OkStatus();
  }
  auto host = OpenHost(registry);
  if (!host && needed) {
    return tl::unexpected<Error>(
        std::move(host).error().WithContext("host of placement.host_expert_layers"));
  }
  if (!host) {
    notices.Warn(fmt::format("no op can run on the host: {}", host.error().ToString()));
    return OkStatus();
  }
  opened.policy.host_device = static_cast<int>(opened.devices.size());
  opened.devices.push_back(*std::move(host));
  opened.policy.device_names.emplace_back(kHostBackend);
  return OkStatus();
}

Status OpenLayerDevices(const std::vector<Choice>& choices, const BackendConfig& config,
                        const HostHooks& hooks, BackendDevices& opened) {
  opened.backend = choices.front().plugin->name();
  opened.layer_devices = choices.size();
  for (const Choice& choice : choices) {
    const std::string& backend = choice.plugin->name();
    if (hooks.on_device) hooks.on_device(backend, choice.device_name, choice.driver);
    const auto options = OptionsOf(config, opened.devices.size());
    const std::vector<std::pair<std::string, std::string>> given(options.begin(), options.end());
    RL_ASSIGN_OR_RETURN(auto device, choice.plugin->Open(choice.device, given));
    opened.devices.push_back(std::move(device));
    opened.identities.emplace_back(backend, choice.device);
    opened.policy.device_names.push_back(choice.name);
    if (hooks.on_drivers_loaded) hooks.on_drivers_loaded();
  }
  return OkStatus();
}

}  // namespace

std::unique_ptr<Registry> MakeRegistry(const Config& config,
                                       const std::vector<std::string>& plugin_paths,
                                       const HostHooks& hooks) {
  HostOptions host;
  host.logger = hooks.logger;
  host.cancelled = hooks.cancelled;
  host.on_foreign_plugin = hooks.on_foreign_plugin;
  RegistryOptions options = RegistryOptions::FromProcess();
  options.flag_paths.assign(plugin_paths.begin(), plugin_paths.end());
  options.config_paths.assign(config.plugins.paths.begin(), config.plugins.paths.end());
  auto registry =
      std::make_unique<Registry>(std::move(options), std::make_shared<PluginHost>(std::move(host)));
  for (const auto& [name, query] : kBuiltInBackends) registry->RegisterBuiltIn(name, query);
  return registry;
}

Status CheckSupport(const Graph& graph, const BackendDevices& devices,
                    const PlacementPolicy& policy) {
  const std::vector<Device*> borrowed = devices.Borrow();
  return PlaceOps(graph, SupportOfDevices(borrowed), policy).map([](const Placement&) {});
}

std::vector<Device*> BackendDevices::Borrow() const {
  std::vector<Device*> borrowed;
  borrowed.reserve(devices.size());
  for (const auto& device : devices) borrowed.push_back(device.get());
  return borrowed;
}

std::vector<DeviceDescription> BackendDevices::DescribeLayerDevices() const {
  std::vector<DeviceDescription> descriptions;
  descriptions.reserve(layer_devices);
  for (size_t i = 0; i < layer_devices; ++i) descriptions.push_back(devices[i]->description());
  return descriptions;
}

Status CheckOneDevice(const BackendDevices& devices, std::string_view what) {
  if (devices.layer_devices < 2) return OkStatus();
  return MakeError(ErrorKind::kUsage, "split.model",
                   "{} runs on one device, but backend.devices names {}; name one", what,
                   devices.layer_devices);
}

Result<BackendDevices> OpenDevices(Registry& registry, const Config& config, const HostHooks& hooks,
                                   Notices& notices) {
  RL_ASSIGN_OR_RETURN(const std::vector<Choice> choices, Choose(registry, config.backend, notices));
  WarnOfManyThreads(config.backend, notices);
  BackendDevices opened;
  RL_RETURN_IF_ERROR(OpenLayerDevices(choices, config.backend, hooks, opened));
  opened.policy.fallback = config.placement.fallback;
  opened.policy.host_ops = config.placement.host_ops;
  // Without a value a session decides with the model; until then the table is on the host.
  opened.policy.host_weights =
      config.placement.host_weights.value_or(DeviceSettings().host_weights);
  opened.policy.host_expert_layers = config.placement.host_expert_layers;
  const bool all_hosts = std::ranges::all_of(
      opened.identities, [](const auto& identity) { return IsHost(identity.first); });
  // There is nothing that the host itself could fall back to, so advice must not mention it.
  if (all_hosts) opened.policy.fallback = FallbackPolicy::kList;
  if (!all_hosts) RL_RETURN_IF_ERROR(AddHost(registry, config.placement, opened, notices));
  return opened;
}

}  // namespace rullama

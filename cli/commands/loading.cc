#include "cli/commands/loading.h"

#include <fmt/ranges.h>
#include <rullama/sdk/processor.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/downloaded_model.h"
#include "cli/reports/memory_bars.h"
#include "cli/terminal/crash_report.h"
#include "cli/terminal/signals.h"
#include "core/config/device_name.h"
#include "engine/engine_access.h"
#include "engine/loading/layer_placement.h"
#include "engine/model_program.h"

namespace rullama::cli {
namespace {

std::string DescribeSampler(const EntropyBoundSettings& s) {
  return fmt::format(
      "denoising, at most {} steps, temperature {} to {}, entropy bound {}, finished after {} "
      "stable "
      "steps below {}",
      s.max_steps, s.t_max, s.t_min, s.entropy_bound, s.stability_threshold,
      s.confidence_threshold);
}

std::string_view NameOfSource(Origin origin) {
  if (origin == Origin::kModelFile) return "the model in Ollama's store";
  return origin == Origin::kFlag ? "--system" : "the configuration";
}

// Settings of the command line that this kind of model does not have. In a file they may be meant
// for another model.
void WarnOfIdleSettings(const ConfigFlags& flags, bool denoises, Console& console) {
  for (const ConfigFlags::Setting& setting : flags.settings) {
    if (!setting.path.starts_with("sampler.") || setting.path == "sampler.seed") continue;
    const bool denoising = setting.path.starts_with("sampler.diffusion.");
    if (denoising == denoises) continue;
    console.Warn(fmt::format(
        "{} has no effect: this model {}", setting.flag,
        denoises ? "denoises, with settings of its own (rullama run --help)" : "does not denoise"));
  }
}

Status SetVerbosity(const ConfigFlags& flags, Console& console) {
  if (flags.quiet && flags.verbose) {
    return MakeError(ErrorKind::kUsage, "usage.option", "-q and -v exclude each other; give one");
  }
  // A flag counts more than RULLAMA_LOG.
  if (flags.quiet) console.set_verbosity(std::min(console.verbosity(), Verbosity::kWarnings));
  if (flags.verbose) console.set_verbosity(Verbosity::kNotes);
  return OkStatus();
}

// Prints what requests cannot have because the backend refuses the ops for it.
void DescribeRefused(const std::vector<Session::RefusedGraph>& refused, const ProgramGraphs& graphs,
                     Console& console) {
  std::map<std::string, std::vector<std::string>> uses;  // by reason
  for (const Session::RefusedGraph& graph : refused) {
    uses[graph.error.message].push_back(graphs.UseOf(graph.graph));
  }
  for (const auto& [reason, lost] : uses) {
    console.Note(fmt::format("not with this backend: {}; {}", fmt::join(lost, ", "), reason));
  }
}

// Prints the memory that each device will hold.
void DescribeMemory(const ModelSession& session, Console& console) {
  std::vector<Session::RefusedGraph> refused;
  const auto needs = session.session().PredictMemory(&refused);
  if (!needs) return console.Warn(needs.error().ToString());
  DescribeRefused(refused, session.graphs(), console);
  const BackendDevices& devices = session.devices();
  std::vector<DeviceMemory> amounts;
  amounts.reserve(needs->size());
  for (size_t i = 0; i < needs->size(); ++i) {
    amounts.push_back({devices.policy.device_names[i], (*needs)[i],
                       devices.devices[i]->description().memory_free});
  }
  for (const std::string& line : DeviceMemoryBars(amounts)) console.Note("memory: " + line);
}

}  // namespace

std::string ThreadsOf(const ModelSession& session) {
  const auto options = OptionsOf(session.config().backend, 0);
  if (const auto found = options.find("threads"); found != options.end()) return found->second;
  return session.devices().backend == "cpu" ? fmt::format("{}", sdk::PhysicalCores()) : "-";
}

HostHooks ProcessHooks(const EnvironmentOverrides& environment) {
  DescribeCachesForCrash();
  HostHooks hooks;
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  hooks.logger = std::make_shared<spdlog::logger>("rullama", std::move(sink));
  hooks.logger->set_pattern("rullama: %l: %v");
  hooks.logger->set_level(spdlog::level::from_str(environment.log_level.value_or("warn")));
  hooks.cancelled = CancelFlag();
  hooks.on_mapping = [](std::span<const std::byte> mapping, bool mapped) {
    mapped ? WatchMapping(mapping) : ForgetMapping(mapping);
  };
  hooks.on_device = DescribeDeviceForCrash;
  hooks.on_foreign_plugin = DescribePluginForCrash;
  hooks.on_drivers_loaded = ReclaimSignalHandlers;
  return hooks;
}

Result<ModelFile> OpenModelFile(const std::optional<std::string>& path) {
  const auto cached = CachedHubFile(path.value_or(""));
  RL_ASSIGN_OR_RETURN(ModelFile model, rullama::OpenModelFile(cached ? cached : path));
  WatchMapping(model.file->bytes());
  return model;
}

Result<ConfiguredModel> LoadModel(const ConfigFlags& flags, Console& console) {
  RL_RETURN_IF_ERROR(SetVerbosity(flags, console));
  RL_ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(flags));
  const HostHooks hooks = ProcessHooks(loaded.environment);
  RL_ASSIGN_OR_RETURN(LoadedModel model,
                      rullama::LoadModel(std::move(loaded.config), hooks, console));
  RL_RETURN_IF_ERROR(CheckGpuLayers(flags.peer, model.facts().layers));
  WarnOfIdleSettings(flags, model.facts().denoises(), console);
  return ConfiguredModel{std::move(model), std::move(loaded.environment)};
}

Result<std::unique_ptr<ModelSession>> OpenModelSession(const ConfigFlags& flags,
                                                       ModelSessionOptions options,
                                                       Console& console) {
  RL_ASSIGN_OR_RETURN(ConfiguredModel loaded, LoadModel(flags, console));
  options.plugin_paths = flags.plugins;
  return ModelSession::Open(std::move(loaded.model), options, ProcessHooks(loaded.environment),
                            console);
}

Result<std::shared_ptr<Engine>> OpenEngine(const ConfigFlags& flags, Console& console,
                                           TraceFile* trace) {
  RL_ASSIGN_OR_RETURN(ConfiguredModel loaded, LoadModel(flags, console));
  HostHooks hooks = ProcessHooks(loaded.environment);
  hooks.observer = TraceOf(trace, loaded.model.file.name);
  RL_ASSIGN_OR_RETURN(
      auto engine,
      EngineAccess::Open(std::move(loaded.model),
                         {.slots = 1, .plugin_paths = flags.plugins, .hooks = std::move(hooks)},
                         console));
  if (flags.verbose) DescribeSession(EngineAccess::SessionOf(*engine), console);
  return engine;
}

std::unique_ptr<Registry> MakeRegistry(const Config& config,
                                       const EnvironmentOverrides& environment,
                                       const std::vector<std::string>& plugin_flags) {
  return rullama::MakeRegistry(config, plugin_flags, ProcessHooks(environment));
}

Result<BackendDevices> OpenDevices(Registry& registry, const Config& config, Console& console) {
  return rullama::OpenDevices(registry, config, ProcessHooks({}), console);
}

namespace {

// Prints the layers of each device.
void DescribeLayers(const ModelSession& session, Console& console) {
  for (const DeviceLayers& run : LayersByDevice(session.placement())) {
    console.Note(fmt::format("device {}: {} has layers {} to {}", run.device, run.name, run.first,
                             run.first + run.count - 1));
  }
}

}  // namespace

void DescribeSession(const ModelSession& session, Console& console) {
  const DeviceDescription& device = session.devices().main().description();
  const ModelFacts& facts = session.model().facts();
  console.Note(fmt::format("model: {} layers, width {}, vocabulary {}, context {}", facts.layers,
                           facts.width, facts.vocabulary, session.capacity()));
  console.Note(
      fmt::format("backend: {} on {} ({})", session.devices().backend, device.name, device.driver));
  DescribeLayers(session, console);
  DescribeMemory(session, console);
  if (session.auto_choices().max_t) {
    console.Note(
        fmt::format("context.prefill_chunk: {}, chosen for the device", session.limits().max_t));
  }
  if (session.auto_choices().host_weights) {
    console.Note(fmt::format("placement.host_weights: [{}], chosen for the device",
                             fmt::join(session.devices().policy.host_weights, ", ")));
  }
  console.Note("sampling: " + (facts.denoises() ? DescribeSampler(session.diffusion())
                                                : session.sampler().Describe()));
  console.Note(fmt::format("seed: {}", session.sampler().seed));
  if (const auto& system = session.config().generation.system;
      system && !session.config().generation.raw) {
    console.Note(fmt::format("system prompt: {} bytes, from {}", system->size(),
                             NameOfSource(session.model().layers.origin("generation.system"))));
  }
}

}  // namespace rullama::cli

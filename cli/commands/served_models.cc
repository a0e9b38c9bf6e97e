#include "cli/commands/served_models.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>
#include <utility>

#include "cli/commands/loading.h"
#include "cli/commands/peer_options.h"
#include "cli/terminal/signals.h"
#include "core/config/schema.h"
#include "core/config/value_codec.h"
#include "engine/adapters_in_force.h"
#include "engine/engine_access.h"
#include "engine/loading/auto_slots.h"

namespace rullama::cli {
namespace {

constexpr KeepAlive kKeepOfSeveral = std::chrono::minutes(5);
// The blocks and keys of the configuration that a model may set for itself.
constexpr std::string_view kOwnSettings[] = {"context.",
                                             "backend.",
                                             "placement.",
                                             "sampler.",
                                             "generation.",
                                             "drafts.",
                                             "server.prefix_cache_mib"};

// The name under which clients find the model: as in Ollama's store, or the file without its
// ending.
std::string IdOf(const ServedModelSetting& model) {
  if (!model.name.empty()) return model.name;
  if (!LooksLikeModelFile(model.path)) return model.path;
  return std::filesystem::path(model.path).stem().string();
}

std::time_t TimeOf(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_mtime : std::time(nullptr);
}

std::vector<std::string> AdapterNamesOf(const ModelConfig& model) {
  std::vector<std::string> names;
  names.reserve(model.adapters.size());
  for (const AdapterSetting& adapter : model.adapters) names.push_back(AdapterName(adapter.path));
  return names;
}

// Requests name a model's adapters.
Status CheckAdapterNames(const std::vector<std::string>& names, const std::string& place) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (seen.insert(name).second) continue;
    return MakeError(ErrorKind::kUsage, "config.conflict",
                     "{}: two adapters have the name '{}', by which requests choose one; rename "
                     "the file or folder of one of them",
                     place, name);
  }
  return OkStatus();
}

// The slots of a model that is not loaded: it has at least as many.
int64_t SlotsOf(const Config& config) { return config.context.slots.value_or(kFewestAutoSlots); }

Status ApplySettings(const ServedModelSetting& model, const std::string& place,
                     LayeredConfig& config) {
  for (const auto& [key, value] : model.settings) {
    const bool own = std::ranges::any_of(
        kOwnSettings, [&key = key](std::string_view begin) { return key.starts_with(begin); });
    if (!own) {
      return MakeError(ErrorKind::kUsage, "config.unknown_key",
                       "{}: found the setting '{}', expected one of context, backend, placement, "
                       "sampler, generation or drafts, or server.prefix_cache_mib",
                       place, key);
    }
    RL_RETURN_IF_ERROR(config.Set(key, value, Origin::kYaml, place));
  }
  return OkStatus();
}

Result<ModelToServe> ConfigureModel(const LoadedConfig& loaded, const ServedModelSetting& model,
                                    KeepAlive keep_alive) {
  ModelToServe out{.id = IdOf(model),
                   .keep_alive = model.keep_alive.value_or(keep_alive),
                   .config = loaded.config};
  const std::string place = "server.models, " + out.id;
  RL_RETURN_IF_ERROR(out.config.Set("model.path", model.path, Origin::kFlag, place));
  RL_RETURN_IF_ERROR(ApplySettings(model, place, out.config));
  if (!model.adapters.empty()) {
    std::vector<std::string> adapters;
    adapters.reserve(model.adapters.size());
    for (const AdapterSetting& adapter : model.adapters) {
      adapters.push_back(fmt::format("{}:{}", adapter.path, adapter.scale));
    }
    RL_RETURN_IF_ERROR(out.config.SetList("model.adapters", adapters, Origin::kFlag, place));
  }
  if (model.mmproj) {
    RL_RETURN_IF_ERROR(out.config.Set("model.mmproj", *model.mmproj, Origin::kFlag, place));
  }
  RL_RETURN_IF_ERROR(out.config.Finish());
  RL_RETURN_IF_ERROR(CheckAdapterNames(AdapterNamesOf(out.config.values().model), place));
  return out;
}

// Adapters and towers belong to one model.
Status CheckFilesOfOneModel(const ModelConfig& model, size_t models) {
  if (models <= 1) return OkStatus();
  const bool adapters = !model.adapters.empty();
  if (!adapters && !model.mmproj) return OkStatus();
  return MakeError(ErrorKind::kUsage, "config.conflict",
                   "model.{} is given for {} models, expected one; give '{}' to each of "
                   "server.models",
                   adapters ? "adapters (--lora)" : "mmproj (--mmproj)", models,
                   adapters ? "adapters" : "mmproj");
}

// One model stays for ever, unless the configuration says otherwise.
KeepAlive KeepAliveOf(const ServerConfig& server) {
  return server.keep_alive.value_or(server.models.size() > 1 ? kKeepOfSeveral : kForEver);
}

}  // namespace

Result<std::vector<ModelToServe>> ModelsToServe(const LoadedConfig& loaded,
                                                const std::string& name) {
  const Config& config = loaded.config.values();
  std::vector<ServedModelSetting> settings = config.server.models;
  if (settings.empty() || !name.empty()) {
    settings = {{.path = config.model.path.value_or(""), .name = name}};
  }
  RL_RETURN_IF_ERROR(CheckFilesOfOneModel(config.model, settings.size()));
  std::vector<ModelToServe> models;
  std::set<std::string> ids;
  for (const ServedModelSetting& setting : settings) {
    RL_ASSIGN_OR_RETURN(ModelToServe model,
                        ConfigureModel(loaded, setting, KeepAliveOf(config.server)));
    if (!ids.insert(std::string(server::WithoutLatest(model.id))).second) {
      return MakeError(ErrorKind::kUsage, "config.conflict",
                       "two of server.models have the name '{}', expected different ones; give one "
                       "of them a 'name'",
                       model.id);
    }
    models.push_back(std::move(model));
  }
  return models;
}

Result<std::shared_ptr<Engine>> OpenServed(const ConfigFlags& flags, const ModelToServe& model,
                                           const EnvironmentOverrides& environment,
                                           const SharedByModels& shared, TraceFile* trace,
                                           Console& console) {
  HostHooks hooks = ProcessHooks(environment);
  hooks.media_budget = shared.media_budget;
  hooks.snapshots = shared.snapshots;
  hooks.cancelled = nullptr;  // a signal lets running answers end
  RL_ASSIGN_OR_RETURN(LoadedModel loaded,
                      rullama::LoadModel(model.config, hooks, console, AdapterUse::kByRow));
  RL_RETURN_IF_ERROR(CheckGpuLayers(flags.peer, loaded.facts().layers));
  hooks.observer = TraceOf(trace, model.id);
  // Models that are loaded at the same time leave room for each other.
  const Config& config = model.config.values();
  const bool alone = config.server.max_loaded_models == 1;
  const EngineSetup setup{.slots = alone ? config.context.slots : SlotsOf(config),
                          .auto_slots = alone,
                          .plugin_paths = flags.plugins,
                          .hooks = std::move(hooks),
                          .apply_adapters = shared.apply_adapters,
                          .warm_up = WarmUp::kDispatch,
                          .stop_warm_up = CancelFlag()};
  return EngineAccess::Open(std::move(loaded), setup, console);
}

Result<std::vector<server::ServedModel>> DescribeServed(const ConfigFlags& flags,
                                                        const std::vector<ModelToServe>& models,
                                                        const EnvironmentOverrides& environment,
                                                        SharedByModels shared, TraceFile* trace,
                                                        Console& console) {
  std::vector<server::ServedModel> served;
  for (const ModelToServe& model : models) {
    RL_ASSIGN_OR_RETURN(const ModelFile file,
                        rullama::OpenModelFile(model.config.values().model.path));
    ModelInfo info = EngineAccess::FileInfo(file);
    info.slots = SlotsOf(model.config.values());
    served.push_back({.id = model.id,
                      .time = TimeOf(file.name),
                      .keep_alive = model.keep_alive,
                      .adapters = AdapterNamesOf(model.config.values().model),
                      .info = std::move(info),
                      .load =
                          [&flags, &model, &environment, shared, trace, &console] {
                            return OpenServed(flags, model, environment, shared, trace, console);
                          },
                      .describe =
                          [&model, &environment](size_t max_items) {
                            return DescribeModel(model.config, ProcessHooks(environment),
                                                 max_items);
                          }});
  }
  return served;
}

}  // namespace rullama::cli

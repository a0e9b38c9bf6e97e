#include "engine/loading/backend_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rullama/sdk/slots.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "engine/loading/backend_setup.h"
#include "engine/loading/layer_placement.h"
#include "engine/loading/loaded_model.h"
#include "engine/model_program.h"

namespace rullama {
namespace {

// The program of a model whose refusals are those of any other: they do not depend on the number of
// rows.
Result<ModelProgram> SmallProgram(const Model& model, CacheTypes types) {
  return BuildModelProgram(model,
                           {.outputs = GraphOutputs::kAllLogits,
                            .capacity = std::min(kDefaultCapacity, model.facts().context_length),
                            .kv_dtype = types,
                            .limits = {.max_t = sdk::kFewRows}});
}

Status CheckProgram(const ModelProgram& program, const Config& config,
                    const BackendDevices& devices) {
  RL_ASSIGN_OR_RETURN(const PlacementPolicy policy,
                      PlaceLayers(program.graphs.front().graph, program.layer_outputs,
                                  config.placement.split, devices));
  for (const SessionGraph& graph : program.graphs) {
    RL_RETURN_IF_ERROR(CheckSupport(graph.graph, devices, policy));
  }
  return OkStatus();
}

Status CheckTypes(const Model& model, const Config& config, const BackendDevices& devices,
                  CacheTypes types) {
  RL_ASSIGN_OR_RETURN(const ModelProgram program, SmallProgram(model, types));
  return CheckProgram(program, config, devices);
}

// The refusals of a model with the types of its KV cache that the configuration names. Error
// backend.kv_dtype if the devices run it with others.
Status CheckModel(const Model& model, const Config& config, const BackendDevices& devices) {
  constexpr std::array kTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                 DType::kQ4_0};
  const CacheTypes wanted = KvDtypeFor(config, devices.backend);
  Status status = CheckTypes(model, config, devices, wanted);
  if (status) return status;
  std::vector<std::string_view> others;
  for (const DType type : kTypes) {
    if (CheckTypes(model, config, devices, type)) others.push_back(NameOf(type));
  }
  if (others.empty()) return status;  // other ops are refused
  return MakeError(ErrorKind::kBackend, "backend.kv_dtype",
                   "a KV cache of {} (context.kv_dtype) does not run on {}, expected one of {}",
                   ToString(wanted), devices.backend, fmt::join(others, ", "));
}

Status CheckOn(Registry& registry, const Model& model, const Config& config, const HostHooks& hooks,
               Notices& notices) {
  RL_ASSIGN_OR_RETURN(const BackendDevices devices, OpenDevices(registry, config, hooks, notices));
  return CheckModel(model, config, devices);
}

}  // namespace

Status CheckCacheTypes(const Model& model, const Config& config, const BackendDevices& devices) {
  Status status = CheckModel(model, config, devices);
  if (!status && status.error().id == "backend.kv_dtype") return status;
  return OkStatus();
}

Status CheckBackend(const Model& model, const Config& config,
                    const std::vector<std::string>& plugin_paths, const HostHooks& hooks,
                    Notices& notices) {
  const std::unique_ptr<Registry> registry = MakeRegistry(config, plugin_paths, hooks);
  Status status = CheckOn(*registry, model, config, hooks, notices);
  registry->Shutdown();
  return status;
}

}  // namespace rullama

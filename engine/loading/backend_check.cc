#include "engine/loading/backend_check.h"

#include <rullama/sdk/slots.h>

#include <algorithm>
#include <memory>

#include "engine/loading/backend_setup.h"
#include "engine/loading/layer_placement.h"
#include "engine/loading/loaded_model.h"
#include "engine/model_program.h"

namespace rullama {
namespace {

Status CheckOn(Registry& registry, const Model& model, const Config& config, const HostHooks& hooks,
               Notices& notices) {
  RL_ASSIGN_OR_RETURN(const BackendDevices devices, OpenDevices(registry, config, hooks, notices));
  // Refusals do not depend on the number of rows.
  RL_ASSIGN_OR_RETURN(const ModelProgram program,
                      BuildModelProgram(model, {.outputs = GraphOutputs::kAllLogits,
                                                .capacity = std::min(kDefaultCapacity,
                                                                     model.facts().context_length),
                                                .kv_dtype = KvDtypeFor(config, devices.backend),
                                                .limits = {.max_t = sdk::kFewRows}}));
  RL_ASSIGN_OR_RETURN(const PlacementPolicy policy,
                      PlaceLayers(program.graphs.front().graph, program.layer_outputs,
                                  config.placement.split, devices));
  for (const SessionGraph& graph : program.graphs) {
    RL_RETURN_IF_ERROR(CheckSupport(graph.graph, devices, policy));
  }
  return OkStatus();
}

}  // namespace

Status CheckBackend(const Model& model, const Config& config,
                    const std::vector<std::string>& plugin_paths, const HostHooks& hooks,
                    Notices& notices) {
  const std::unique_ptr<Registry> registry = MakeRegistry(config, plugin_paths, hooks);
  Status status = CheckOn(*registry, model, config, hooks, notices);
  registry->Shutdown();
  return status;
}

}  // namespace rullama

// The models that `rullama serve` answers with, as the configuration lists them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/commands/options.h"
#include "cli/reports/trace.h"
#include "cli/terminal/console.h"
#include "core/base/status.h"
#include "engine/api/engine.h"
#include "engine/media/media_budget.h"
#include "engine/scheduling/snapshot_store.h"
#include "server/models.h"

namespace rullama::cli {

// A model with the configuration that it is opened with.
struct ModelToServe {
  std::string id;  // under which clients find it
  KeepAlive keep_alive = kForEver;
  LayeredConfig config;
};

// The models of `server.models`, or that of `model.path`. At least one. Errors (kUsage):
// config.* of the settings of a model, config.conflict for two models of one name and for adapters
// that all of several models would get.
// `name`, if it is not empty, is that of the model of `model.path`, which alone is served then.
Result<std::vector<ModelToServe>> ModelsToServe(const LoadedConfig& loaded,
                                                const std::string& name);

// What all models share.
struct SharedByModels {
  std::shared_ptr<MediaBudget> media_budget;
  std::shared_ptr<SnapshotStore> snapshots;  // null: prompts are not kept on disk
  bool apply_adapters = true;                // as EngineSetup::apply_adapters
};

// Opens a model; blocks until requests can run. `trace`, if any, gets a session for it. Errors:
// those of LoadModel and EngineAccess::Open.
Result<std::shared_ptr<Engine>> OpenServed(const ConfigFlags& flags, const ModelToServe& model,
                                           const EnvironmentOverrides& environment,
                                           const SharedByModels& shared, TraceFile* trace,
                                           Console& console);

// The models for the server, which load as OpenServed() does. `models` and the others outlive the
// result. Errors: those of OpenModelFile, so that a file that is not there is told at once.
Result<std::vector<server::ServedModel>> DescribeServed(const ConfigFlags& flags,
                                                        const std::vector<ModelToServe>& models,
                                                        const EnvironmentOverrides& environment,
                                                        SharedByModels shared, TraceFile* trace,
                                                        Console& console);

}  // namespace rullama::cli

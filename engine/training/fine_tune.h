// Fine-tuning of a model from start to end: data, adapter, steps, validation, checkpoints.
//
// Thread safety: one thread. Errors: those of TrainingSetup, Trainer and checkpoint.h.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "engine/api/training.h"
#include "engine/host_hooks.h"
#include "engine/loaded_model.h"

namespace rullama {

// FineTune of the public interface, for a model that was loaded. `plugin_paths` are searched before
// those of the configuration.
Result<FineTuneResult> FineTuneModel(const LoadedModel& model, const FineTuneOptions& options,
                                     const std::vector<std::string>& plugin_paths,
                                     const FineTuneHooks& hooks, const HostHooks& host,
                                     Notices& notices);

}  // namespace rullama

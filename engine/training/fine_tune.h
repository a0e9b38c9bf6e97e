// Fine-tuning of a model from start to end: data, adapter, steps, validation, checkpoints.
//
// Thread safety: one thread. Errors: those of TrainingSetup, Trainer and checkpoint.h.
//
// The folder: data_set.h makes examples of lines, packing.h steps of the device of examples,
// training_program.h the graphs of loss, gradient and optimizer; trainer.h runs them, and
// training_setup.h opens a trainer with the data and devices of a configuration. checkpoint.h keeps
// runs. A TrainingGroup (api/training.h) shares the steps among processes (group_step.cc,
// docs/adr/0020).
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "engine/api/training.h"
#include "engine/host_hooks.h"
#include "engine/loading/loaded_model.h"

namespace rullama {

// FineTune of the public interface, for a model that was loaded. `plugin_paths` are searched before
// those of the configuration.
Result<FineTuneResult> FineTuneModel(const LoadedModel& model, const FineTuneOptions& options,
                                     const std::vector<std::string>& plugin_paths,
                                     const FineTuneHooks& hooks, const HostHooks& host,
                                     Notices& notices);

}  // namespace rullama

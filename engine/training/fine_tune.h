// Fine-tuning of a model from start to end: data, adapter, steps, validation, checkpoints.
//
// Thread safety: one thread. Errors: those of the parts; train.model (kModelFile): the model does
// not predict tokens; train.option (kUsage).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "engine/host_hooks.h"
#include "engine/loaded_model.h"
#include "engine/training/trainer.h"

namespace rullama {

// A report of the steps since the last one.
struct TrainingReport {
  int64_t step = 0;   // the last one, from 1
  int64_t steps = 0;  // of the run
  LossSum loss = {};  // of all their tokens
  double norm = 0;    // of the last gradient
  double rate = 0;    // learning rate of the last step
  double seconds = 0;
  int64_t rows = 0;  // tokens that went through the model
};

struct ValidationReport {
  int64_t step = 0;
  LossSum loss;
  bool is_best = false;
};

struct FineTuneHooks {
  std::function<void(const TrainingReport&)> on_report = {};
  std::function<void(const ValidationReport&)> on_validation = {};
  std::function<void(const std::string& folder)> on_saved = {};
  // Polled between steps; the run then ends with a checkpoint. Null: never.
  std::shared_ptr<const std::atomic<bool>> cancelled = {};
};

struct FineTuneOptions {
  std::vector<std::string> plugin_paths = {};  // searched before those of the configuration
  std::string resume = {};                     // a checkpoint to go on from
  std::string first_adapter = {};              // an adapter to begin with, instead of a new one
  std::string dump_gradients = {};  // a safetensors file: gradients of the first step, then end
  bool test_only = false;           // only the loss of the test set
};

struct FineTuneResult {
  int64_t step = 0;
  LossSum last;        // of the last step, before it
  LossSum test = {};   // of test.jsonl, if there is one
  std::string folder;  // with the adapter
  bool cancelled = false;
};

// Trains as the configuration of the model says (Config::training).
Result<FineTuneResult> FineTune(const LoadedModel& model, const FineTuneOptions& options,
                                const FineTuneHooks& hooks, const HostHooks& host,
                                Notices& notices);

}  // namespace rullama

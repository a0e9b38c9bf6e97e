// Fine-tuning: trains a low-rank adapter (LoRA) of a model on examples and writes it for PEFT and
// llama.cpp. docs/finetuning.md describes examples, checkpoints and settings.
//
//   auto result = rullama::FineTune({.model = "model.gguf",
//                                    .settings = {{"training.data", "chats.jsonl"},
//                                                 {"training.output", "my-adapter"}}});
#pragma once

#include <rullama/base/error.h>
#include <rullama/engine/export.h>
#include <rullama/engine/options.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rullama {

// The loss of some tokens. Its mean is the loss that training makes smaller; exp of it is the
// perplexity.
struct LossSum {
  double sum = 0;      // of -ln p, natural logarithm
  int64_t tokens = 0;  // that are learnt

  [[nodiscard]] double mean() const { return tokens == 0 ? 0 : sum / static_cast<double>(tokens); }
};

// Optimizer steps: those since the last report, or one.
struct TrainingReport {
  int64_t step = 0;    // the last one, from 1
  int64_t steps = 0;   // of the run
  LossSum loss = {};   // of all their tokens, each before its step
  double norm = 0;     // of the last gradient, before it was clipped
  double rate = 0;     // learning rate of the last step
  double seconds = 0;  // that they took, without validations and checkpoints
  int64_t rows = 0;    // tokens that went through the model
};

struct ValidationReport {
  int64_t step = 0;
  LossSum loss;
  bool is_best = false;  // of the run so far
};

// Callbacks of a run, called on the thread that called FineTune. All members may be empty.
struct FineTuneHooks {
  std::function<void(const TrainingReport&)> on_step = {};  // each step alone
  std::function<void(const TrainingReport&)> on_report = {};
  std::function<void(const ValidationReport&)> on_validation = {};
  std::function<void(const std::string& folder)> on_saved = {};  // a checkpoint was written
  // Polled between steps; once it is true the run ends with a checkpoint.
  std::shared_ptr<const std::atomic<bool>> cancelled = {};
};

// Options of a run that are not settings of the block `training` of the configuration.
struct FineTuneOptions {
  // A checkpoint to go on from, or the output folder of a run, whose newest checkpoint is taken.
  std::string resume = {};
  std::string first_adapter = {};  // an adapter to begin with, instead of a new one
  bool test_only = false;          // only the loss of the test set
};

struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

// The mean losses of a run from its first step, also of what was done before it was resumed.
struct LossHistory {
  std::vector<double> steps;           // of each step, before it
  std::vector<LossPoint> validations;  // in their order
};

struct FineTuneResult {
  int64_t step = 0;   // optimizer steps that were done
  LossSum test = {};  // of test.jsonl, if there is one
  LossHistory history = {};
  std::string folder;  // with the adapter
  bool cancelled = false;
};

// Trains as the settings of the configuration say, of which training.data is needed. Blocks until
// the run has ended. Thread safety: any number of runs at once, each with an output folder of its
// own. Errors: config.*, gguf.*, model.*, tokenizer.*, io.*, plugin.*, backend.*, memory.*;
// train.*, data.*, adapter.* (docs/errors.md).
RULLAMA_API Result<FineTuneResult> FineTune(const EngineOptions& engine,
                                            const FineTuneOptions& options = {},
                                            const FineTuneHooks& hooks = {});

}  // namespace rullama

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
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rullama {

// The loss of some tokens. Its mean is the loss that training makes smaller; exp of it is the
// perplexity.
struct LossSum {
  double sum = 0;      // of -ln p, natural logarithm
  int64_t tokens = 0;  // that are learnt

  LossSum& operator+=(const LossSum& other) {
    sum += other.sum;
    tokens += other.tokens;
    return *this;
  }
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

struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

// The mean losses of a run from its first step, also of what was done before it was resumed.
struct LossHistory {
  std::vector<double> steps;           // of each step, before it
  std::vector<LossPoint> validations;  // in their order
};

// Callbacks of a run, called on the thread that called FineTune. All members may be empty. In a
// group, on_step, on_report and on_saved are called on every rank after the same steps.
struct FineTuneHooks {
  std::function<void(const TrainingReport&)> on_step = {};  // each step alone
  std::function<void(const TrainingReport&)> on_report = {};
  std::function<void(const ValidationReport&)> on_validation = {};
  // A checkpoint was written; on another rank than 0: rank 0 writes it now.
  std::function<void(const std::string& folder)> on_saved = {};
  // Polled between steps; once it is true the run ends with a checkpoint. In a group that of rank 0
  // counts.
  std::shared_ptr<const std::atomic<bool>> cancelled = {};
};

// Numbers of f32 that do not change, with what keeps them in memory. Copies share them.
class FloatArray {
 public:
  FloatArray() = default;
  explicit FloatArray(std::vector<float> values) {
    auto kept = std::make_shared<const std::vector<float>>(std::move(values));
    values_ = *kept;
    owner_ = std::move(kept);
  }
  // `values` lie in what `owner` keeps.
  FloatArray(std::span<const float> values, std::shared_ptr<const void> owner)
      : values_(values), owner_(std::move(owner)) {}

  [[nodiscard]] std::span<const float> values() const { return values_; }

 private:
  std::span<const float> values_;
  std::shared_ptr<const void> owner_;
};

// The gradient of a part of an optimizer step: of the examples that go through the device together,
// at most training.max_seq_length rows. The parts of a step follow from its examples alone.
struct PartGradient {
  LossSum loss;  // of the part's tokens
  // The gradient of the mean loss over the tokens of the whole step, f32: A [rank, inputs] and B
  // [outputs, rank] of each weight one after another, in the order of the model's layers. 4 bytes a
  // parameter.
  FloatArray values;
};

// The result of a step, which rank 0 sends to the others.
struct GroupStep {
  LossSum loss;        // of the whole step, before it
  double norm = 0;     // of its gradient, before it was clipped
  bool last = false;   // the run was cancelled on rank 0 and ends after this step
  FloatArray adapter;  // A and B after the step, as in PartGradient
};

// Processes that train one adapter together, each with a FineTune of the same settings and data.
// Part k of a step is computed by rank k mod size(). Rank 0 adds up the gradients of all parts in
// their order, changes the adapter, validates and writes files; the others take the adapter from
// it. So the files of the run have the bytes that one process writes, with any number of ranks,
// where equal devices compute the parts.
//
// The functions are called on the thread of FineTune, and block until what they wait for is there.
// Steps are counted from 1. An error of theirs ends the run on this rank. When another rank has
// ended with an error, those that wait must get one too, which is the duty of the implementation:
// ranks with other settings or data would wait for parts that nobody computes.
class TrainingGroup {
 public:
  virtual ~TrainingGroup() = default;
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t size() const = 0;  // above rank()

  // On other ranks than 0: hands over a part that was computed here, and takes a step's result.
  virtual Status SendPart(int64_t step, int64_t part, PartGradient gradient) = 0;
  virtual Result<GroupStep> ReceiveStep(int64_t step) = 0;
  // On rank 0: takes a part of another rank, each once, in their order; and hands over the result.
  virtual Result<PartGradient> ReceivePart(int64_t step, int64_t part) = 0;
  virtual Status SendStep(int64_t step, GroupStep result) = 0;
};

// Options of a run that are not settings of the block `training` of the configuration.
struct FineTuneOptions {
  // A checkpoint to continue from, or the output folder of a run, whose newest checkpoint is taken.
  // Settings that are not given are those of the run. Other numbers of steps may be given.
  std::string resume = {};
  std::string first_adapter = {};  // an adapter to begin with, instead of a new one
  bool test_only = false;          // only the loss of the test set
  bool overwrite = false;          // replace a run in the output folder; else it is an error
  TrainingGroup* group = nullptr;  // borrowed; empty: this process trains alone
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
// own; the ranks of a group share one. Errors: those of the group; config.*, gguf.*, model.*,
// tokenizer.*, io.*, plugin.*, backend.*, memory.*; train.*, data.*, adapter.* (docs/errors.md).
RULLAMA_API Result<FineTuneResult> FineTune(const EngineOptions& engine,
                                            const FineTuneOptions& options = {},
                                            const FineTuneHooks& hooks = {});

}  // namespace rullama

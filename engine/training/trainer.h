// The adapter of a model under training on its devices: steps of the optimizer, losses, and the
// values of the parameters.
//
// Ownership: owns the session; borrows model, devices and weights, which outlive it. Thread safety:
// one thread at a time. Errors: those of the session; train.not_finite (kRuntime): a loss or a
// gradient is NaN or infinite, and the parameters are those of the step before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "engine/api/training.h"
#include "engine/training/example.h"
#include "engine/training/packing.h"
#include "engine/training/training_program.h"
#include "models/common/model.h"

namespace rullama {

struct TrainerOptions {
  std::vector<Device*> devices;
  PlacementPolicy policy;
  std::vector<LowRankPair> pairs;
  AdamWSettings adamw;
  double max_grad_norm = 1;          // 0: gradients are not clipped
  int64_t slots = 1;                 // the most examples of an optimizer step
  int64_t max_t = 1;                 // of a step of the device
  int64_t max_r = 1;                 // of its rows that have a target
  int64_t recomputed_layers = 0;     // as in TrainingProgramOptions
  TrainingGroup* group = nullptr;    // borrowed; outlives the trainer
  StepObserver* observer = nullptr;  // borrowed; outlives the trainer
};

struct StepResult {
  LossSum loss;       // before the step
  double norm = 0;    // of the gradient of the mean loss, before it was clipped
  int64_t rows = 0;   // tokens that went through the model
  bool last = false;  // the run was cancelled and ends after this step
};

// Bytes that the devices of a trainer hold.
struct TrainingMemory {
  uint64_t weights = 0;
  uint64_t states = 0;       // the adapter, its gradients and moments
  uint64_t activations = 0;  // of the largest step
  uint64_t others = 0;       // inputs, outputs and scratch memory of kernels
  [[nodiscard]] uint64_t total() const { return weights + states + activations + others; }
};

// The stored tensors of a parameter, f32.
struct ParameterValues {
  std::vector<float> value;
  std::vector<float> m;  // AdamW's mean of the gradients
  std::vector<float> v;  // and of their squares
};

class Trainer {
 public:
  // `weights`: the tensors of the model's file.
  static Result<std::unique_ptr<Trainer>> Create(const Model& model, const GgufFile& file,
                                                 TrainerOptions options);

  // The memory that the main device will hold once all graphs have run their largest step.
  [[nodiscard]] Result<MemoryNeed> PredictMemory() const;
  // Creates the states, all zero, and the plan of the largest step. Done once, before the functions
  // below.
  Status Start();
  // The memory that is held now.
  [[nodiscard]] Result<TrainingMemory> Memory() const;

  // One step of AdamW on the mean loss over all learnt tokens of the examples: the gradients of its
  // parts, then Update(). `number`: steps that were done before. Of a group: the step that all its
  // ranks do together; `cancelled` is that of rank 0, and `last` of the result is true on all.
  Result<StepResult> Step(std::span<const Example* const> examples, int64_t number, double rate,
                          bool cancelled = false);
  // Adds the gradient of the mean loss to the gradients, which Step() leaves at zero.
  Result<LossSum> AddGradients(std::span<const Example* const> examples);
  Result<LossSum> Evaluate(std::span<const Example* const> examples);

  // A and B of the pairs, by name.
  [[nodiscard]] std::vector<std::string> parameters() const;
  Result<std::vector<float>> Read(const std::string& state);
  Status Write(const std::string& state, std::span<const float> values);

  [[nodiscard]] const std::vector<LowRankPair>& pairs() const { return options_.pairs; }
  [[nodiscard]] Session& session() { return *session_; }

 private:
  explicit Trainer(TrainerOptions options) : options_(std::move(options)) {}
  Status SetNumber(std::string_view input, double value);
  Status RunOnce(GraphHandle graph);
  Status SetLossFactor(std::span<const Example* const> examples);
  Result<LossSum> RunPart(GraphHandle graph, PackedStep& part);
  Result<LossSum> RunLoss(GraphHandle graph, std::span<const Example* const> examples);
  Result<double> GradientNorm();
  Status ClearGradients();
  Result<StepResult> StepAlone(std::span<const Example* const> examples, int64_t number,
                               double rate);
  // Clips the gradients, changes the adapter and sets the gradients to zero. `loss`: of the step.
  Result<StepResult> Update(std::span<const Example* const> examples, LossSum loss, int64_t number,
                            double rate);

  // Steps of a group (group_step.cc).
  Result<StepResult> Lead(std::span<const Example* const> examples, int64_t number, double rate,
                          bool cancelled);
  Result<StepResult> Follow(std::span<const Example* const> examples, int64_t number);
  Result<PartGradient> GradientOfPart(PackedStep& part);
  [[nodiscard]] size_t ParameterCount() const;
  Result<LossSum> AddUp(std::vector<PackedStep> parts, int64_t step);
  // The values of a state of each parameter, one after another.
  using StateName = std::string (*)(const std::string& parameter);
  Result<std::vector<float>> ReadAll(StateName name);
  Status WriteAll(StateName name, std::span<const float> values);

  TrainerOptions options_;
  std::unique_ptr<GgufWeights> weights_;
  std::unique_ptr<Session> session_;
};

}  // namespace rullama

// The graphs of a training session. They share the weights of the model, which stay as they are,
// and the states of the adapter: A and B of each adapted weight, their gradients, and the two
// moments that AdamW keeps of each. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/passes/adapt.h"
#include "core/runtime/session.h"
#include "models/common/model.h"

namespace rullama {

// The graphs of a TrainingProgram.
namespace training_graphs {
inline constexpr GraphHandle kTrain{0};     // loss, and its gradients added to their states
inline constexpr GraphHandle kEvaluate{1};  // the loss
inline constexpr GraphHandle kNorm{2};      // the sum of the squares of all gradients
inline constexpr GraphHandle kUpdate{3};    // a step of AdamW, which sets the gradients to zero
inline constexpr size_t kCount = 4;
}  // namespace training_graphs

namespace training_names {
// Inputs of kTrain and kEvaluate.
inline constexpr std::string_view kTargets = "targets";         // i32[R]
inline constexpr std::string_view kLossFactor = "loss_factor";  // f32[1], of each row's loss
// Inputs of kUpdate, f32[1]; the op adamw says what they are.
inline constexpr std::string_view kRate = "learning_rate";
inline constexpr std::string_view kMCorrection = "m_correction";
inline constexpr std::string_view kVCorrection = "v_correction";
inline constexpr std::string_view kGradientFactor = "gradient_factor";
// Outputs.
inline constexpr std::string_view kLoss = "loss";             // f32[R] of kTrain and kEvaluate
inline constexpr std::string_view kSquares = "grad_squares";  // f32[1] of kNorm
}  // namespace training_names

// Hyperparameters of AdamW that do not change in a run.
struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

struct TrainingProgramOptions {
  std::vector<LowRankPair> pairs;  // whose A and B are states
  AdamWSettings adamw;
  int64_t slots = 1;  // examples of a step
  int64_t max_t = 1;  // of a step
  int64_t max_r = 1;  // rows of a step that have a target
  // The first layers, whose activations are computed again for their derivatives; at most all.
  int64_t recomputed_layers = 0;
};

// The further states of a parameter.
std::string FirstMomentOf(const std::string& parameter);
std::string SecondMomentOf(const std::string& parameter);

struct TrainingProgram {
  std::vector<SessionGraph> graphs;
  std::vector<SyntheticConstant> constants;
};

// Errors: those of Model::BuildGraph and WithScalesAndAdapters; train.model (the model has no head
// that can be trained).
Result<TrainingProgram> BuildTrainingProgram(const Model& model,
                                             const TrainingProgramOptions& options);

}  // namespace rullama

// Steps of a trainer in a group (TrainingGroup): the parts of a step are shared among the ranks,
// and rank 0 makes the step of them.
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/training/trainer.h"

namespace rullama {
namespace {

std::string Itself(const std::string& parameter) { return parameter; }

Status CheckSize(std::string_view what, size_t found, size_t expected) {
  if (found == expected) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "train.group",
                   "{} of the group has {} values, expected {}; give all ranks the same model and "
                   "settings",
                   what, found, expected);
}

}  // namespace

size_t Trainer::ParameterCount() const {
  int64_t count = 0;
  for (const LowRankPair& pair : pairs()) count += pair.rank * (pair.inputs + pair.outputs);
  return static_cast<size_t>(count);
}

Result<std::vector<float>> Trainer::ReadAll(StateName name) {
  std::vector<float> all;
  all.reserve(ParameterCount());
  for (const std::string& parameter : parameters()) {
    RL_ASSIGN_OR_RETURN(const std::vector<float> values, Read(name(parameter)));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

Status Trainer::WriteAll(StateName name, std::span<const float> values) {
  RL_RETURN_IF_ERROR(CheckSize("the adapter", values.size(), ParameterCount()));
  for (const std::string& parameter : parameters()) {
    const size_t size = session_->StateBytes(name(parameter)) / sizeof(float);
    RL_RETURN_IF_ERROR(Write(name(parameter), values.first(size)));
    values = values.subspan(size);
  }
  return OkStatus();
}

// The gradients are zero before and afterwards.
Result<PartGradient> Trainer::GradientOfPart(PackedStep& part) {
  PartGradient gradient;
  RL_ASSIGN_OR_RETURN(gradient.loss, RunPart(training_graphs::kTrain, part));
  RL_ASSIGN_OR_RETURN(std::vector<float> values, ReadAll(GradientOf));
  gradient.values = FloatArray(std::move(values));
  RL_RETURN_IF_ERROR(ClearGradients());
  return gradient;
}

// Leaves the sum of the gradients of all parts, added in their order, as grad_accumulate adds them
// where one process has all parts.
Result<LossSum> Trainer::AddUp(std::vector<PackedStep> parts, int64_t step) {
  TrainingGroup& group = *options_.group;
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<PartGradient> own;
  for (size_t k = 0; k < parts.size(); k += ranks) {
    RL_ASSIGN_OR_RETURN(PartGradient gradient, GradientOfPart(parts[k]));
    own.push_back(std::move(gradient));
  }
  LossSum loss;
  std::vector<float> sum(ParameterCount());
  for (size_t k = 0; k < parts.size(); ++k) {
    PartGradient part;
    if (k % ranks == 0) {
      part = std::move(own[k / ranks]);
    } else {
      RL_ASSIGN_OR_RETURN(part, group.ReceivePart(step, static_cast<int64_t>(k)));
    }
    loss += part.loss;
    const std::span<const float> values = part.values.values();
    RL_RETURN_IF_ERROR(CheckSize("a gradient", values.size(), sum.size()));
    std::ranges::transform(sum, values, sum.begin(), std::plus<>());
  }
  RL_RETURN_IF_ERROR(WriteAll(GradientOf, sum));
  return loss;
}

Result<StepResult> Trainer::Lead(std::span<const Example* const> examples, int64_t number,
                                 double rate, bool cancelled) {
  RL_RETURN_IF_ERROR(SetLossFactor(examples));
  RL_ASSIGN_OR_RETURN(const LossSum loss,
                      AddUp(PackExamples(examples, options_.max_t), number + 1));
  RL_ASSIGN_OR_RETURN(StepResult result, Update(examples, loss, number, rate));
  result.last = cancelled;
  GroupStep step{.loss = loss, .norm = result.norm, .last = cancelled, .adapter = {}};
  RL_ASSIGN_OR_RETURN(std::vector<float> adapter, ReadAll(Itself));
  step.adapter = FloatArray(std::move(adapter));
  RL_RETURN_IF_ERROR(options_.group->SendStep(number + 1, std::move(step)));
  return result;
}

Result<StepResult> Trainer::Follow(std::span<const Example* const> examples, int64_t number) {
  TrainingGroup& group = *options_.group;
  RL_RETURN_IF_ERROR(SetLossFactor(examples));
  std::vector<PackedStep> parts = PackExamples(examples, options_.max_t);
  for (auto k = group.rank(); k < std::ssize(parts); k += group.size()) {
    RL_ASSIGN_OR_RETURN(PartGradient gradient, GradientOfPart(parts[static_cast<size_t>(k)]));
    RL_RETURN_IF_ERROR(group.SendPart(number + 1, k, std::move(gradient)));
  }
  RL_ASSIGN_OR_RETURN(const GroupStep step, group.ReceiveStep(number + 1));
  StepResult result{.loss = step.loss, .norm = step.norm, .last = step.last};
  for (const Example* example : examples) result.rows += example->rows();
  RL_RETURN_IF_ERROR(WriteAll(Itself, step.adapter.values()));
  return result;
}

}  // namespace rullama

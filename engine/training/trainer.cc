#include "engine/training/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace rullama {
namespace {

int64_t CountedOf(std::span<const Example* const> examples) {
  int64_t counted = 0;
  for (const Example* example : examples) counted += example->counted();
  return counted;
}

tl::unexpected<Error> NotFinite(std::string_view what, const std::vector<int64_t>& lines) {
  return MakeError(ErrorKind::kRuntime, "train.not_finite",
                   "the {} is not a finite number; the examples are those of the lines {}. The "
                   "adapter stays as it was before this step; lower the learning rate",
                   what, fmt::join(lines, ", "));
}

std::vector<int64_t> LinesOf(std::span<const Example* const> examples) {
  std::vector<int64_t> lines;
  for (const Example* example : examples) lines.push_back(example->line);
  return lines;
}

// 1 / (1 - beta^t)
double Correction(double beta, int64_t t) {
  return 1 / (1 - std::pow(beta, static_cast<double>(t)));
}

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::Create(const Model& model, const GgufFile& file,
                                                 TrainerOptions options) {
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(options)));
  const TrainerOptions& o = trainer->options_;
  RL_ASSIGN_OR_RETURN(TrainingProgram program,
                      BuildTrainingProgram(model, {.pairs = o.pairs,
                                                   .adamw = o.adamw,
                                                   .slots = o.slots,
                                                   .max_t = o.max_t,
                                                   .max_r = o.max_r,
                                                   .recomputed_layers = o.recomputed_layers}));
  trainer->weights_ = std::make_unique<GgufWeights>(file);
  for (SyntheticConstant& constant : program.constants) {
    trainer->weights_->AddConstant(std::move(constant.name), constant.type,
                                   std::move(constant.bytes));
  }
  SessionOptions session{.devices = o.devices,
                         .policy = o.policy,
                         .limits = {.max_t = o.max_t, .max_r = o.max_r},
                         .slots = o.slots,
                         .observer = o.observer};
  RL_ASSIGN_OR_RETURN(trainer->session_, Session::Create(std::move(program.graphs),
                                                         *trainer->weights_, std::move(session)));
  return trainer;
}

Result<MemoryNeed> Trainer::PredictMemory() const {
  RL_ASSIGN_OR_RETURN(const std::vector<MemoryNeed> needs, session_->PredictMemory());
  return needs.front();
}

// Compiles the plan of the largest step, whose arena serves all others, and those that have all
// states, and sets these to zero.
Status Trainer::Start() {
  RL_RETURN_IF_ERROR(session_->Prepare(options_.max_t, DemandMode::kPerOutput,
                                       training_graphs::kTrain, options_.max_r));
  for (const GraphHandle graph : {training_graphs::kNorm, training_graphs::kUpdate}) {
    RL_RETURN_IF_ERROR(session_->Prepare(1, DemandMode::kAllRows, graph));
  }
  for (const std::string& parameter : parameters()) {
    for (const std::string& state :
         {parameter, GradientOf(parameter), FirstMomentOf(parameter), SecondMomentOf(parameter)}) {
      RL_RETURN_IF_ERROR(session_->ClearState(state));
    }
  }
  return OkStatus();
}

Result<TrainingMemory> Trainer::Memory() const {
  RL_ASSIGN_OR_RETURN(const SessionStats stats, session_->Stats());
  return TrainingMemory{.weights = stats.weight_bytes,
                        .states = stats.state_bytes,
                        .activations = stats.arena_bytes,
                        .others = stats.io_bytes + stats.workspace_bytes};
}

std::vector<std::string> Trainer::parameters() const {
  std::vector<std::string> names;
  for (const LowRankPair& pair : options_.pairs) {
    names.push_back(pair.a);
    names.push_back(pair.b);
  }
  return names;
}

Result<std::vector<float>> Trainer::Read(const std::string& state) {
  std::vector<float> values(session_->StateBytes(state) / sizeof(float));
  RL_RETURN_IF_ERROR(session_->ReadState(state, std::as_writable_bytes(std::span(values))));
  return values;
}

Status Trainer::Write(const std::string& state, std::span<const float> values) {
  return session_->WriteState(state, std::as_bytes(values));
}

Status Trainer::SetNumber(std::string_view input, double value) {
  const auto number = static_cast<float>(value);
  return session_->SetInput(input, std::as_bytes(std::span(&number, 1)));
}

// Runs a graph whose shapes do not depend on the rows of the step.
Status Trainer::RunOnce(GraphHandle graph) {
  StepRows rows;
  rows.graph = graph;
  rows.demand = DemandMode::kAllRows;
  rows.tokens = rows.pos = rows.slot = {0};
  return session_->Run(rows);
}

Result<LossSum> Trainer::RunPart(GraphHandle graph, PackedStep& part) {
  part.rows.graph = graph;
  RL_RETURN_IF_ERROR(
      session_->SetInput(training_names::kTargets, std::as_bytes(std::span(part.targets))));
  RL_RETURN_IF_ERROR(session_->Run(part.rows));
  std::vector<float> losses(part.targets.size());
  RL_RETURN_IF_ERROR(
      session_->ReadOutput(training_names::kLoss, std::as_writable_bytes(std::span(losses))));
  LossSum loss{.tokens = std::ssize(losses)};
  for (const float value : losses) loss.sum += value;
  if (!std::isfinite(loss.sum)) return NotFinite("loss", part.lines);
  return loss;
}

Result<LossSum> Trainer::RunLoss(GraphHandle graph, std::span<const Example* const> examples) {
  LossSum loss;
  for (PackedStep& part : PackExamples(examples, options_.max_t)) {
    RL_ASSIGN_OR_RETURN(const LossSum one, RunPart(graph, part));
    loss += one;
  }
  return loss;
}

Result<LossSum> Trainer::Evaluate(std::span<const Example* const> examples) {
  RL_RETURN_IF_ERROR(SetNumber(training_names::kLossFactor, 1));
  return RunLoss(training_graphs::kEvaluate, examples);
}

// The gradient is that of the mean loss over all learnt tokens of the examples.
Status Trainer::SetLossFactor(std::span<const Example* const> examples) {
  const int64_t counted = CountedOf(examples);
  return SetNumber(training_names::kLossFactor,
                   counted == 0 ? 0 : 1 / static_cast<double>(counted));
}

Result<LossSum> Trainer::AddGradients(std::span<const Example* const> examples) {
  RL_RETURN_IF_ERROR(SetLossFactor(examples));
  return RunLoss(training_graphs::kTrain, examples);
}

Status Trainer::ClearGradients() {
  for (const std::string& parameter : parameters()) {
    RL_RETURN_IF_ERROR(session_->ClearState(GradientOf(parameter)));
  }
  return OkStatus();
}

Result<double> Trainer::GradientNorm() {
  RL_RETURN_IF_ERROR(RunOnce(training_graphs::kNorm));
  float squares = 0;
  RL_RETURN_IF_ERROR(session_->ReadOutput(training_names::kSquares,
                                          std::as_writable_bytes(std::span(&squares, 1))));
  return std::sqrt(static_cast<double>(squares));
}

Result<StepResult> Trainer::Step(std::span<const Example* const> examples, int64_t number,
                                 double rate, bool cancelled) {
  const TrainingGroup* group = options_.group;
  if (group == nullptr || group->size() == 1) {
    RL_ASSIGN_OR_RETURN(StepResult result, StepAlone(examples, number, rate));
    result.last = cancelled;
    return result;
  }
  return group->rank() == 0 ? Lead(examples, number, rate, cancelled) : Follow(examples, number);
}

Result<StepResult> Trainer::StepAlone(std::span<const Example* const> examples, int64_t number,
                                      double rate) {
  auto loss = AddGradients(examples);
  if (!loss) {
    RL_RETURN_IF_ERROR(ClearGradients());
    return tl::unexpected(std::move(loss).error());
  }
  return Update(examples, *loss, number, rate);
}

Result<StepResult> Trainer::Update(std::span<const Example* const> examples, LossSum loss,
                                   int64_t number, double rate) {
  StepResult result{.loss = loss};
  for (const Example* example : examples) result.rows += example->rows();
  RL_ASSIGN_OR_RETURN(result.norm, GradientNorm());
  if (!std::isfinite(result.norm)) {
    RL_RETURN_IF_ERROR(ClearGradients());
    return NotFinite("norm of the gradient", LinesOf(examples));
  }
  // As torch's clip_grad_norm_.
  constexpr double kClipEpsilon = 1e-6;
  const double most = options_.max_grad_norm;
  const double factor = most > 0 ? std::min(1.0, most / (result.norm + kClipEpsilon)) : 1.0;
  RL_RETURN_IF_ERROR(SetNumber(training_names::kRate, rate));
  RL_RETURN_IF_ERROR(
      SetNumber(training_names::kMCorrection, Correction(options_.adamw.beta1, number + 1)));
  RL_RETURN_IF_ERROR(
      SetNumber(training_names::kVCorrection, Correction(options_.adamw.beta2, number + 1)));
  RL_RETURN_IF_ERROR(SetNumber(training_names::kGradientFactor, factor));
  RL_RETURN_IF_ERROR(RunOnce(training_graphs::kUpdate));
  return result;
}

}  // namespace rullama

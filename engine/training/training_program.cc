#include "engine/training/training_program.h"

#include <fmt/format.h>

#include <utility>

namespace rullama {
namespace {

struct Parameter {
  std::string name;
  TensorType type;
};

// A and B of every pair.
std::vector<Parameter> ParametersOf(const TrainingProgramOptions& options) {
  std::vector<Parameter> parameters;
  for (const LowRankPair& pair : options.pairs) {
    parameters.push_back({pair.a, pair.AType()});
    parameters.push_back({pair.b, pair.BType()});
  }
  return parameters;
}

// The ends of the first layers, and of what precedes them.
std::vector<std::string> CheckpointsOf(const ModelGraph& model, int64_t layers) {
  std::vector<std::string> names;
  for (const ValueId value : model.hidden) {
    if (layers == 0 || std::ssize(names) > layers) break;
    names.push_back(model.builder.graph().value(value).name);
  }
  return names;
}

// The model up to the loss of its wanted rows, with the adapter.
Result<SessionGraph> LossGraph(const Model& model, const TrainingProgramOptions& options,
                               bool differentiate, TrainingProgram& program) {
  RL_ASSIGN_OR_RETURN(ModelGraph parts, model.BuildGraph({.slots = options.slots,
                                                          .capacity = options.max_t,
                                                          .kv_dtype = DType::kF32,
                                                          .caches = false,
                                                          .max_t = options.max_t,
                                                          .max_r = options.max_r}));
  if (parts.head.weight == kNoValue) {
    return MakeError(ErrorKind::kModelFile, "train.model",
                     "this model has no output layer that predicts the next token, expected one "
                     "that writes text");
  }
  GraphBuilder& b = parts.builder;
  const std::string hidden = b.ok() ? b.graph().value(parts.last_norm).name : "";
  const ValueId targets = b.Input(training_names::kTargets, {DType::kI32, {Dim::R()}});
  const ValueId factor = b.Input(training_names::kLossFactor, {DType::kF32, {1}});
  const ValueId x =
      b.Add(ops::GatherRows{.table = parts.last_norm, .ids = parts.rows}, "loss.hidden");
  const auto loss = b.Add(ops::LinearCrossEntropy{.x = x,
                                                  .weight = parts.head.weight,
                                                  .targets = targets,
                                                  .factor = factor,
                                                  .cap = parts.head.softcap},
                          "loss");
  b.Output(training_names::kLoss, loss.loss, RowDemand::kAll);
  SessionGraph graph{.graph = {}, .buckets = {options.max_t}, .extends_past = false};
  if (differentiate) {
    Differentiation what;
    what.seeds = {{hidden, b.ok() ? b.graph().value(loss.dx).name : ""}};
    for (const Parameter& parameter : ParametersOf(options)) {
      what.parameters.push_back(parameter.name);
    }
    if (b.ok()) what.checkpoints = CheckpointsOf(parts, options.recomputed_layers);
    graph.differentiation = std::move(what);
    program.constants = std::move(parts.constants);
  }
  RL_ASSIGN_OR_RETURN(const Graph plain, std::move(b).Finish());
  RL_ASSIGN_OR_RETURN(graph.graph,
                      WithScalesAndAdapters(plain, model.facts().weight_scales, options.pairs));
  return graph;
}

// The sum of the squares of the gradients of all parameters, added up in pairs, so that few sums
// wait for others.
Result<SessionGraph> NormGraph(const std::vector<Parameter>& parameters) {
  GraphBuilder b("training.norm");
  std::vector<ValueId> sums;
  for (const Parameter& parameter : parameters) {
    const std::string gradient = GradientOf(parameter.name);
    sums.push_back(
        b.Add(ops::SumSquares{b.State(gradient, parameter.type)}, gradient + ".squares"));
  }
  for (int round = 0; sums.size() > 1; ++round) {
    std::vector<ValueId> pairs;
    for (size_t i = 0; i + 1 < sums.size(); i += 2) {
      pairs.push_back(
          b.Add(ops::Sum(sums[i], sums[i + 1]), fmt::format("squares.sum{}.{}", round, i / 2)));
    }
    if (sums.size() % 2 == 1) pairs.push_back(sums.back());
    sums = std::move(pairs);
  }
  b.Output(training_names::kSquares, sums.front(), RowDemand::kAll);
  RL_ASSIGN_OR_RETURN(Graph graph, std::move(b).Finish());
  return SessionGraph{.graph = std::move(graph), .buckets = {1}, .extends_past = false};
}

Result<SessionGraph> UpdateGraph(const std::vector<Parameter>& parameters,
                                 const AdamWSettings& adamw) {
  GraphBuilder b("training.update");
  const auto number = [&](std::string_view name) { return b.Input(name, {DType::kF32, {1}}); };
  const ValueId rate = number(training_names::kRate);
  const ValueId m_correction = number(training_names::kMCorrection);
  const ValueId v_correction = number(training_names::kVCorrection);
  const ValueId factor = number(training_names::kGradientFactor);
  for (const Parameter& parameter : parameters) {
    const auto state = [&](const std::string& name) { return b.State(name, parameter.type); };
    b.Add(ops::AdamW{.p = state(parameter.name),
                     .m = state(FirstMomentOf(parameter.name)),
                     .v = state(SecondMomentOf(parameter.name)),
                     .g = state(GradientOf(parameter.name)),
                     .lr = rate,
                     .m_correction = m_correction,
                     .v_correction = v_correction,
                     .g_factor = factor,
                     .m_rate = static_cast<float>(1 - adamw.beta1),
                     .v_rate = static_cast<float>(1 - adamw.beta2),
                     .eps = static_cast<float>(adamw.epsilon),
                     .weight_decay = static_cast<float>(adamw.weight_decay)},
          parameter.name + ".next");
  }
  RL_ASSIGN_OR_RETURN(Graph graph, std::move(b).Finish());
  return SessionGraph{.graph = std::move(graph), .buckets = {1}, .extends_past = false};
}

}  // namespace

std::string FirstMomentOf(const std::string& parameter) { return parameter + "/m"; }
std::string SecondMomentOf(const std::string& parameter) { return parameter + "/v"; }

Result<TrainingProgram> BuildTrainingProgram(const Model& model,
                                             const TrainingProgramOptions& options) {
  TrainingProgram program;
  const std::vector<Parameter> parameters = ParametersOf(options);
  program.graphs.resize(training_graphs::kCount);
  const auto set = [&](GraphHandle place, Result<SessionGraph> graph) -> Status {
    if (!graph) return tl::unexpected(std::move(graph).error());
    program.graphs[place.index] = *std::move(graph);
    return OkStatus();
  };
  RL_RETURN_IF_ERROR(
      set(training_graphs::kTrain, LossGraph(model, options, /*differentiate=*/true, program)));
  RL_RETURN_IF_ERROR(
      set(training_graphs::kEvaluate, LossGraph(model, options, /*differentiate=*/false, program)));
  RL_RETURN_IF_ERROR(set(training_graphs::kNorm, NormGraph(parameters)));
  RL_RETURN_IF_ERROR(set(training_graphs::kUpdate, UpdateGraph(parameters, options.adamw)));
  return program;
}

}  // namespace rullama

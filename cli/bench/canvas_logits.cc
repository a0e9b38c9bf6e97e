#include "cli/bench/canvas_logits.h"

#include <algorithm>
#include <cmath>

#include "cli/bench/score.h"
#include "core/runtime/output_names.h"
#include "engine/canvas_generator.h"
#include "engine/session_canvas.h"

namespace rullama::cli {
namespace {

Status CheckSizes(const ModelSession& engine, const CanvasScore& score) {
  const ModelFacts& facts = engine.model().facts();
  if (!facts.denoises()) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "this model predicts the next token and has no canvas; expected a "
                     "DiffusionGemma, or no canvas");
  }
  const auto rows = static_cast<int64_t>(score.canvas.size());
  if (rows != facts.canvas.length) {
    return MakeError(ErrorKind::kUsage, "usage.canvas",
                     "the canvas has {} tokens, expected {}, the model's canvas length", rows,
                     facts.canvas.length);
  }
  const auto elements = static_cast<int64_t>(score.previous.size());
  if (elements != 0 && elements != rows * facts.vocabulary) {
    return MakeError(ErrorKind::kUsage, "usage.canvas",
                     "the logits to condition on are {} numbers, expected [{}, {}]", elements, rows,
                     facts.vocabulary);
  }
  return OkStatus();
}

// A step of `graph` over all rows of the canvas, after the cached rows of slot 0.
Status RunCanvas(Session& session, GraphHandle graph, std::span<const int32_t> canvas) {
  return session.Run(
      StepRows::Consecutive(canvas, session.past(0), /*slot=*/0, DemandMode::kAllRows, graph));
}

Status Condition(Session& session, GraphHandle graph, const CanvasScore& score) {
  const float inverse = 1 / score.temperature;
  RL_RETURN_IF_ERROR(
      session.SetInput(canvas_names::kInverseTemperature, std::as_bytes(std::span(&inverse, 1))));
  RL_RETURN_IF_ERROR(session.SetInput(canvas_names::kLogits, std::as_bytes(score.previous)));
  return RunCanvas(session, graph, score.canvas);
}

}  // namespace

Result<std::vector<float>> CanvasLogits(ModelSession& engine, const CanvasScore& score) {
  RL_RETURN_IF_ERROR(CheckSizes(engine, score));
  RL_RETURN_IF_ERROR(CheckIds(engine, score.prefix));
  RL_RETURN_IF_ERROR(CheckIds(engine, score.canvas));
  Session& session = engine.session();
  session.ForgetSlot(0);
  PhiloxCanvasRandom unused(0);
  const ProgramGraphs& graphs = engine.graphs();
  CanvasGeneratorOptions options{.graphs = CanvasGraphs(graphs)};
  options.capacity = engine.capacity() - std::ssize(score.canvas);
  options.canvas_length = std::ssize(score.canvas);
  RL_RETURN_IF_ERROR(CanvasGenerator(session, unused, options).Feed(score.prefix));

  RL_RETURN_IF_ERROR(SetCanvasRows(session, std::ssize(score.canvas)));
  RL_RETURN_IF_ERROR(
      session.Prepare(std::ssize(score.canvas), DemandMode::kAllRows, options.graphs.denoise));
  RL_RETURN_IF_ERROR(session.ClearState(canvas_names::kSoftEmbedding));
  if (!score.previous.empty()) {
    RL_RETURN_IF_ERROR(Condition(session, graphs.condition.value(), score));
  }
  RL_RETURN_IF_ERROR(RunCanvas(session, options.graphs.denoise, score.canvas));
  std::vector<float> logits(score.canvas.size() *
                            static_cast<size_t>(engine.model().facts().vocabulary));
  RL_RETURN_IF_ERROR(
      session.ReadOutput(output_names::kLogits, std::as_writable_bytes(std::span(logits))));
  if (std::ranges::any_of(logits, [](float x) { return std::isnan(x); })) {
    return MakeError(ErrorKind::kRuntime, "backend.nan", "logits of the canvas are not numbers");
  }
  return logits;
}

}  // namespace rullama::cli

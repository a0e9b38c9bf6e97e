#include "samplers/entropy_bound.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/config/sampler_ranges.h"

namespace rullama {
namespace {

template <typename Range, typename Number>
Status CheckRange(std::string_view id, Number value, const Range& range) {
  if (range.Contains(value)) return OkStatus();
  return MakeError(ErrorKind::kUsage, id, "{} is {}, expected {}", id, value, range.Describe());
}

}  // namespace

Status EntropyBoundSettings::Validate() const {
  namespace ranges = sampler_ranges;
  RL_RETURN_IF_ERROR(CheckRange("sampler.max_steps", max_steps, ranges::kMaxSteps));
  RL_RETURN_IF_ERROR(CheckRange("sampler.t_min", t_min, ranges::kCanvasTemperature));
  RL_RETURN_IF_ERROR(CheckRange("sampler.t_max", t_max, ranges::kCanvasTemperature));
  if (t_max < t_min) {
    return MakeError(ErrorKind::kUsage, "sampler.t_max",
                     "sampler.t_max is {}, expected at least t_min, which is {}", t_max, t_min);
  }
  RL_RETURN_IF_ERROR(CheckRange("sampler.entropy_bound", entropy_bound, ranges::kEntropy));
  RL_RETURN_IF_ERROR(
      CheckRange("sampler.stability_threshold", stability_threshold, ranges::kStabilityThreshold));
  return CheckRange("sampler.confidence_threshold", confidence_threshold, ranges::kEntropy);
}

ValueId AppendEntropyBound(GraphBuilder& builder, ValueId logits, float entropy_bound) {
  using namespace canvas_names;  // NOLINT(google-build-using-namespace): a handful of constants
  const ValueId inverse_temperature = builder.Input(kInverseTemperature, {DType::kF32, {1}});
  const ValueId uniforms = builder.Input(kUniforms, {DType::kF32, {Dim::T()}});
  const ValueId noise = builder.Input(kNoise, {DType::kI32, {Dim::T()}});
  const ValueId z =
      builder.Add(ops::Scale{.x = logits, .weight = inverse_temperature}, "canvas.scaled");
  const ValueId best = builder.Add(ops::ArgMax{z}, "canvas.best.token");
  const ValueId sampled =
      builder.Add(ops::Categorical{.x = z, .u = uniforms}, "canvas.sampled.token");
  const ValueId entropy = builder.Add(ops::Entropy{z}, "canvas.entropy.nats");
  const ValueId accepted = builder.Add(
      ops::EntropyAccept{.entropy = entropy, .bound = entropy_bound}, "canvas.accepted.mask");
  const ValueId next =
      builder.Add(ops::Where{.condition = accepted, .a = sampled, .b = noise}, "canvas.next.token");
  builder.Output(kBest, best, RowDemand::kAll);
  builder.Output(kSampled, sampled, RowDemand::kAll);
  builder.Output(kEntropy, entropy, RowDemand::kAll);
  builder.Output(kAccepted, accepted, RowDemand::kAll);
  builder.Output(kNext, next, RowDemand::kAll);
  return inverse_temperature;
}

// ---- the loop -----------------------------------------------------------------------------------

EntropyBoundLoop::EntropyBoundLoop(const EntropyBoundSettings& settings, int64_t canvas_length,
                                   CanvasRandom& random)
    : settings_(settings),
      random_(&random),
      canvas_(static_cast<size_t>(canvas_length)),
      best_(canvas_.size(), -1),  // -1 is not a token, so the first step never counts as stable
      uniforms_(canvas_.size()),
      noise_(canvas_.size()),
      steps_left_(settings.max_steps) {}

Result<EntropyBoundLoop> EntropyBoundLoop::Begin(const EntropyBoundSettings& settings,
                                                 int64_t vocabulary, int64_t canvas_length,
                                                 int64_t first_position, CanvasRandom& random) {
  RL_RETURN_IF_ERROR(settings.Validate());
  RL_CHECK(canvas_length >= 1 && vocabulary >= 1);
  EntropyBoundLoop loop(settings, canvas_length, random);
  RL_RETURN_IF_ERROR(random.Begin(first_position, vocabulary, loop.canvas_));
  return loop;
}

// Falls linearly from t_max in the first step to t_min one step after the last.
float EntropyBoundLoop::Temperature() const {
  const float part = static_cast<float>(steps_left_) / static_cast<float>(settings_.max_steps);
  return settings_.t_min + (settings_.t_max - settings_.t_min) * part;
}

Status EntropyBoundLoop::CheckReply() const {
  const size_t rows = canvas_.size();
  RL_CHECK(reply_.best.size() == rows && reply_.sampled.size() == rows &&
           reply_.next.size() == rows && reply_.entropy.size() == rows &&
           reply_.accepted.size() == rows);
  for (size_t row = 0; row < rows; ++row) {
    if (std::isnan(reply_.entropy[row])) {
      return MakeError(ErrorKind::kRuntime, "backend.nan",
                       "the logits of row {} of the canvas are not numbers in step {}; the model "
                       "file is damaged, or the backend computes wrongly (compare with --backend "
                       "reference)",
                       row, steps_taken());
    }
  }
  return OkStatus();
}

Result<CanvasStep> EntropyBoundLoop::Step(CanvasModel& model) {
  RL_CHECK(!finished_);
  CanvasStep step;
  step.index = steps_taken();
  step.max_steps = settings_.max_steps;
  step.temperature = Temperature();
  RL_RETURN_IF_ERROR(random_->Draw(uniforms_, noise_));
  const CanvasRequest request = {.canvas = canvas_,
                                 .self_conditioned = step.index > 0,
                                 .inverse_temperature = 1.0F / step.temperature,
                                 .uniforms = uniforms_,
                                 .noise = noise_};
  RL_RETURN_IF_ERROR(model.Denoise(request, reply_));
  RL_RETURN_IF_ERROR(CheckReply());
  step_canvas_ = std::exchange(canvas_, reply_.next);
  step.canvas = step_canvas_;
  step.reply = &reply_;

  float entropy = 0;  // float32 sum in row order, as in the published sampler
  for (const float row : reply_.entropy) entropy += row;
  step.mean_entropy = entropy / static_cast<float>(canvas_.size());
  step.accepted = std::ranges::count_if(reply_.accepted, [](float mark) { return mark != 0; });
  stable_steps_ = reply_.best == best_ ? stable_steps_ + 1 : 0;
  best_ = reply_.best;
  --steps_left_;
  const bool settled = stable_steps_ >= settings_.stability_threshold &&
                       step.mean_entropy < settings_.confidence_threshold;
  finished_ = settled || steps_left_ == 0;
  return step;
}

Status EntropyBoundLoop::Run(CanvasModel& model,
                             const std::function<bool(const CanvasStep&)>& on_step) {
  while (!finished_) {
    RL_ASSIGN_OR_RETURN(const CanvasStep step, Step(model));
    if (on_step && !on_step(step)) break;
  }
  return OkStatus();
}

}  // namespace rullama

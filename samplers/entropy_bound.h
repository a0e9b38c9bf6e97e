// The entropy-bound sampler of block diffusion (arXiv 2505.24857, as used by DiffusionGemma). A
// canvas of random tokens is denoised step by step. In each step the rows of lowest entropy, up to
// a total budget, keep the tokens that were drawn for them; the others get new random tokens.
//
// The part that reads logits is ops of the model's graph (AppendEntropyBound), so logits stay on
// the device. The schedule, the random numbers and the stop criterion are on the host
// (EntropyBoundLoop). CanvasModel is the interface between the two.
//
// Thread safety: one thread per object.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "core/ir/canvas_names.h"
#include "samplers/canvas_random.h"

namespace rullama {

struct EntropyBoundSettings {
  int64_t max_steps = 48;  // most denoising steps of a canvas
  float t_min = 0.4F;      // temperature of a step beyond the last
  float t_max = 0.8F;      // temperature of the first step
  float entropy_bound =
      0.1F;  // nats; a row is accepted while the sum of lower entropies is at most this
  int64_t stability_threshold = 1;      // consecutive steps with the same most likely tokens
  float confidence_threshold = 0.005F;  // mean entropy below which a stable canvas is finished

  // Errors: sampler.<member> (kUsage) with what was found and the range.
  [[nodiscard]] Status Validate() const;
};

// Appends the sampling of one step after `logits` (f32[T, vocabulary], one row for each token of
// one canvas), with inputs and outputs of canvas_names. Returns the inverse temperature.
ValueId AppendEntropyBound(GraphBuilder& builder, ValueId logits, float entropy_bound);

// One evaluation of the model on a canvas.
struct CanvasRequest {
  std::span<const int32_t> canvas;
  // True if the logits of the previous step, at its temperature, condition this step.
  bool self_conditioned = false;
  float inverse_temperature = 1;
  std::span<const float> uniforms;
  std::span<const int32_t> noise;
};
struct CanvasReply {
  std::vector<int32_t> best, sampled, next;
  std::vector<float> entropy, accepted;
};

class CanvasModel {
 public:
  virtual ~CanvasModel() = default;
  // Fills each vector of the reply with one number per row.
  virtual Status Denoise(const CanvasRequest& request, CanvasReply& reply) = 0;
};

// The result of a step.
struct CanvasStep {
  int64_t index = 0;  // from 0
  int64_t max_steps = 0;
  float temperature = 0;
  float mean_entropy = 0;           // nats
  int64_t accepted = 0;             // rows
  std::span<const int32_t> canvas;  // the tokens at the start of the step
  const CanvasReply* reply = nullptr;
};

// The denoising loop of one canvas. A caller runs single steps, or all of them with Run().
class EntropyBoundLoop {
 public:
  // Draws the initial canvas. `first_position` is the position of the canvas in the sequence.
  // `random` must outlive this object. Errors: those of Validate() and of `random`.
  static Result<EntropyBoundLoop> Begin(const EntropyBoundSettings& settings, int64_t vocabulary,
                                        int64_t canvas_length, int64_t first_position,
                                        CanvasRandom& random);

  [[nodiscard]] bool finished() const { return finished_; }
  // The most likely token of each row so far; the result once finished.
  [[nodiscard]] const std::vector<int32_t>& best() const { return best_; }
  // The tokens at the start of the next step.
  [[nodiscard]] const std::vector<int32_t>& canvas() const { return canvas_; }
  [[nodiscard]] int64_t steps_taken() const { return settings_.max_steps - steps_left_; }

  // Runs one step; finished() must be false. The result points into this object until the next
  // step. Errors: of the model and of `random`; backend.nan if an entropy is not a number.
  Result<CanvasStep> Step(CanvasModel& model);

  // Runs steps until finished or until `on_step` (may be empty) returns false.
  Status Run(CanvasModel& model, const std::function<bool(const CanvasStep&)>& on_step);

 private:
  EntropyBoundLoop(const EntropyBoundSettings& settings, int64_t canvas_length,
                   CanvasRandom& random);
  [[nodiscard]] float Temperature() const;
  Status CheckReply() const;

  EntropyBoundSettings settings_;
  CanvasRandom* random_;
  std::vector<int32_t> canvas_, best_, step_canvas_;
  std::vector<float> uniforms_;
  std::vector<int32_t> noise_;
  CanvasReply reply_;
  int64_t steps_left_;
  int64_t stable_steps_ = 0;
  bool finished_ = false;
};

}  // namespace rullama

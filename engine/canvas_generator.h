// Generates text with a block-diffusion model. Prompts run through the causal pass; then canvases
// are denoised one after another, and each finished canvas is appended to the sequence. Works on
// token ids.
//
// A session keeps the state between two steps of a canvas once: at most one of its slots has a
// canvas that is begun and not finished. Steps that read prompts may run meanwhile.
//
// Thread safety: one thread; `cancelled` may be set from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/base/stop_reason.h"
#include "core/runtime/sequence_feeder.h"
#include "core/runtime/session.h"
#include "engine/model_program.h"
#include "engine/session_canvas.h"
#include "samplers/canvas_random.h"
#include "samplers/entropy_bound.h"

namespace rullama {

class ModelSession;

// The graphs of a session that write canvases.
struct CanvasGraphs {
  // The program is that of a model that denoises.
  explicit CanvasGraphs(const ProgramGraphs& program)
      : read(program.read), denoise(program.denoise.value()) {}
  GraphHandle read;     // appends tokens to the caches
  GraphHandle denoise;  // takes a step of a canvas
};

struct CanvasGeneratorOptions {
  CanvasGraphs graphs;
  int32_t slot = 0;
  int64_t capacity = 0;  // most positions of the sequence
  int64_t canvas_length = 0;
  int64_t vocabulary = 0;
  EntropyBoundSettings settings = {};
  std::vector<int32_t> end_tokens = {};
  const std::atomic<bool>* cancelled = nullptr;  // polled between steps
};

// The options for slot 0 of a session with a model that denoises, without callbacks.
CanvasGeneratorOptions CanvasOptionsOf(const ModelSession& session);

class CanvasGenerator {
 public:
  // The session and `random` must outlive this object.
  CanvasGenerator(Session& session, CanvasRandom& random, CanvasGeneratorOptions options);

  // Appends tokens to the sequence. Errors: context.overflow, run.cancelled.
  Status Feed(std::span<const int32_t> tokens);

  struct Canvas {
    std::vector<int32_t>
        tokens;  // the most likely token of each row; those after an end token are to be ignored
    int64_t steps = 0;
    bool finished = false;  // false if a callback or a cancellation stopped it
  };
  // Denoises the next canvas. It is not part of the sequence until it is fed. Error
  // context.overflow if it does not fit. on_step (may be empty) returns false to stop.
  Result<Canvas> Denoise(const std::function<bool(const CanvasStep&)>& on_step);

  struct Progress {
    CanvasStep step;  // points into this object until the next step
    bool finished = false;
    // The answer's tokens of a finished canvas, and why the answer ends with it, if it does.
    std::vector<int32_t> text = {};
    std::optional<StopReason> end = {};
  };
  // Takes one denoising step of an answer, of its next canvas if none is begun. A canvas that is
  // finished is appended to the sequence, unless the answer ends with it: at an end token, with
  // `max_tokens` (negative: no limit), or where no other canvas fits. Error context.overflow if the
  // first canvas does not fit.
  Result<Progress> Advance(int64_t max_tokens);

  // The tokens of the canvas that is begun or was finished last.
  [[nodiscard]] const std::vector<int32_t>& canvas() const { return loop_->best(); }
  [[nodiscard]] int64_t canvases() const { return canvases_; }  // finished by Advance()
  [[nodiscard]] int64_t position() const { return feeder_.position(); }

 private:
  [[nodiscard]] bool Fits(int64_t rows) const { return position() + rows <= options_.capacity; }
  Status CheckFits(int64_t rows) const;
  // Begins the next canvas.
  Status Begin();
  // Adds to `progress` what the finished canvas brings the answer.
  void TakeText(int64_t max_tokens, Progress& progress);

  Session& session_;
  CanvasRandom& random_;
  CanvasGeneratorOptions options_;
  SequenceFeeder feeder_;
  std::optional<EntropyBoundLoop> loop_;
  std::optional<SessionCanvas> model_;
  int64_t tokens_ = 0;  // of the answer
  int64_t canvases_ = 0;
};

}  // namespace rullama

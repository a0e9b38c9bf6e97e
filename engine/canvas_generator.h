// Generates text with a block-diffusion model. Prompts run through the causal pass; then canvases
// are denoised one after another, and each finished canvas is appended to the sequence. Works on
// token ids.
//
// Thread safety: one thread; `cancelled` may be set from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/base/stop_reason.h"
#include "core/runtime/sequence_feeder.h"
#include "core/runtime/session.h"
#include "samplers/canvas_random.h"
#include "samplers/entropy_bound.h"

namespace rullama {

class ModelSession;

struct CanvasGeneratorOptions {
  int32_t slot = 0;
  int64_t capacity = 0;  // most positions of the sequence
  int64_t canvas_length = 0;
  int64_t vocabulary = 0;
  EntropyBoundSettings settings = {};
  std::vector<int32_t> end_tokens = {};
  const std::atomic<bool>* cancelled = nullptr;  // polled between steps
  // Rows evaluated so far and in all, after each chunk that Feed evaluates.
  std::function<void(int64_t done, int64_t total)> on_prefill = {};
};

// The options for slot 0 of a session with a model that denoises, without callbacks.
CanvasGeneratorOptions CanvasOptionsOf(const ModelSession& session);

class CanvasGenerator {
 public:
  // The session must have the graphs of CanvasGraph; it and `random` must outlive this object.
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

  struct Callbacks {
    std::function<bool(int64_t canvas, const CanvasStep&)> on_step = {};
    // Called with the tokens of a finished canvas that belong to the text. Returns false to stop.
    std::function<bool(std::span<const int32_t> tokens)> on_canvas = {};
  };
  struct Outcome {
    StopReason reason = StopReason::kEndOfGeneration;
    int64_t tokens = 0;  // passed to on_canvas
    int64_t canvases = 0;
    int64_t steps = 0;
    int32_t end_token = -1;
  };
  // Generates canvases until an end token, `max_tokens` (negative: no limit) or the end of the
  // context. The last canvas is not appended to the sequence. Error context.overflow if the first
  // canvas does not fit.
  Result<Outcome> Generate(int64_t max_tokens, const Callbacks& callbacks);

  [[nodiscard]] int64_t position() const { return feeder_.position(); }

 private:
  [[nodiscard]] bool Fits(int64_t rows) const { return position() + rows <= options_.capacity; }
  Status CheckFits(int64_t rows) const;
  Status Append(std::span<const int32_t> tokens,
                const std::function<void(int64_t done, int64_t total)>& on_step);
  // The length of the text of a canvas: up to its first end token, else the whole canvas.
  [[nodiscard]] size_t TextLength(std::span<const int32_t> canvas) const;

  Session& session_;
  CanvasRandom& random_;
  CanvasGeneratorOptions options_;
  SequenceFeeder feeder_;
};

}  // namespace rullama

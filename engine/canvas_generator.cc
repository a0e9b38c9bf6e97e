#include "engine/canvas_generator.h"

#include <algorithm>
#include <utility>

#include "engine/model_session.h"
#include "engine/session_canvas.h"

namespace rullama {

CanvasGeneratorOptions CanvasOptionsOf(const ModelSession& session) {
  const ModelFacts& facts = session.model().facts();
  const std::span<const TokenId> ends = session.tokenizer().end_of_generation_ids();
  return {.capacity = session.capacity(),
          .canvas_length = facts.canvas.length,
          .vocabulary = facts.vocabulary,
          .settings = session.diffusion(),
          .end_tokens = {ends.begin(), ends.end()}};
}

CanvasGenerator::CanvasGenerator(Session& session, CanvasRandom& random,
                                 CanvasGeneratorOptions options)
    : session_(session),
      random_(random),
      options_(std::move(options)),
      feeder_(session,
              {.graph = kEncodeGraph, .slot = options_.slot, .cancelled = options_.cancelled}) {}

Status CanvasGenerator::CheckFits(int64_t rows) const {
  if (Fits(rows)) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "context.overflow",
                   "{} tokens follow {} in the context, which holds {} (a canvas has {}); shorten "
                   "the prompt",
                   rows, position(), options_.capacity, options_.canvas_length);
}

Status CanvasGenerator::Feed(std::span<const int32_t> tokens) {
  return Append(tokens, options_.on_prefill);
}

Status CanvasGenerator::Append(std::span<const int32_t> tokens,
                               const std::function<void(int64_t, int64_t)>& on_step) {
  RL_RETURN_IF_ERROR(CheckFits(std::ssize(tokens)));
  return feeder_.Feed(tokens, DemandMode::kStateOnly, DemandMode::kStateOnly,
                      [&on_step](int64_t done, int64_t total) {
                        if (on_step) on_step(done, total);
                        return OkStatus();
                      });
}

Result<CanvasGenerator::Canvas> CanvasGenerator::Denoise(
    const std::function<bool(const CanvasStep&)>& on_step) {
  RL_RETURN_IF_ERROR(CheckFits(options_.canvas_length));
  RL_ASSIGN_OR_RETURN(auto loop,
                      EntropyBoundLoop::Begin(options_.settings, options_.vocabulary,
                                              options_.canvas_length, position(), random_));
  RL_ASSIGN_OR_RETURN(auto model, SessionCanvas::Begin(session_, options_.vocabulary,
                                                       options_.canvas_length, options_.slot));
  RL_RETURN_IF_ERROR(loop.Run(model, [this, &on_step](const CanvasStep& step) {
    return (!on_step || on_step(step)) && !feeder_.cancelled();
  }));
  return Canvas{loop.best(), loop.steps_taken(), loop.finished()};
}

size_t CanvasGenerator::TextLength(std::span<const int32_t> canvas) const {
  return static_cast<size_t>(std::ranges::find_first_of(canvas, options_.end_tokens) -
                             canvas.begin());
}

Result<CanvasGenerator::Outcome> CanvasGenerator::Generate(int64_t max_tokens,
                                                           const Callbacks& callbacks) {
  Outcome outcome;
  outcome.reason = StopReason::kMaxTokens;
  while (max_tokens < 0 || outcome.tokens < max_tokens) {
    if (outcome.canvases > 0 && !Fits(options_.canvas_length)) {
      outcome.reason = StopReason::kContextFull;
      return outcome;
    }
    RL_ASSIGN_OR_RETURN(const Canvas canvas, Denoise([&](const CanvasStep& step) {
                          return !callbacks.on_step || callbacks.on_step(outcome.canvases, step);
                        }));
    outcome.steps += canvas.steps;
    ++outcome.canvases;
    if (!canvas.finished) {
      outcome.reason = feeder_.cancelled() ? StopReason::kCancelled : StopReason::kStopped;
      return outcome;
    }
    const size_t length = TextLength(canvas.tokens);
    const bool ended = length < canvas.tokens.size();
    size_t taken = length;
    if (max_tokens >= 0) {
      taken = std::min(taken, static_cast<size_t>(max_tokens - outcome.tokens));
    }
    outcome.tokens += static_cast<int64_t>(taken);
    if (callbacks.on_canvas && !callbacks.on_canvas(std::span(canvas.tokens).first(taken))) {
      outcome.reason = StopReason::kStopped;
      return outcome;
    }
    if (ended && taken == length) {
      outcome.reason = StopReason::kEndOfGeneration;
      outcome.end_token = canvas.tokens[length];
      return outcome;
    }
    const bool more = max_tokens < 0 || outcome.tokens < max_tokens;
    if (more && Fits(options_.canvas_length)) {
      RL_RETURN_IF_ERROR(Append(canvas.tokens, {}));
    }
  }
  return outcome;
}

}  // namespace rullama

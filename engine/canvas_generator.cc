#include "engine/canvas_generator.h"

#include <algorithm>
#include <utility>

#include "engine/model_session.h"

namespace rullama {

CanvasGeneratorOptions CanvasOptionsOf(const ModelSession& session) {
  const ModelFacts& facts = session.model().facts();
  const std::span<const TokenId> ends = session.tokenizer().end_of_generation_ids();
  return {.graphs = CanvasGraphs(session.graphs()),
          .capacity = session.capacity(),
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
      feeder_(
          session,
          {.graph = options_.graphs.read, .slot = options_.slot, .cancelled = options_.cancelled}) {
}

Status CanvasGenerator::CheckFits(int64_t rows) const {
  if (Fits(rows)) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "context.overflow",
                   "{} tokens follow {} in the context, which holds {} (a canvas has {}); shorten "
                   "the prompt",
                   rows, position(), options_.capacity, options_.canvas_length);
}

Status CanvasGenerator::Feed(std::span<const int32_t> tokens) {
  RL_RETURN_IF_ERROR(CheckFits(std::ssize(tokens)));
  return feeder_.Feed(tokens, DemandMode::kStateOnly, DemandMode::kStateOnly, {});
}

Status CanvasGenerator::Begin() {
  RL_RETURN_IF_ERROR(CheckFits(options_.canvas_length));
  RL_ASSIGN_OR_RETURN(loop_, EntropyBoundLoop::Begin(options_.settings, options_.vocabulary,
                                                     options_.canvas_length, position(), random_));
  RL_ASSIGN_OR_RETURN(model_,
                      SessionCanvas::Begin(session_, options_.graphs.denoise, options_.vocabulary,
                                           options_.canvas_length, options_.slot));
  return OkStatus();
}

Result<CanvasGenerator::Canvas> CanvasGenerator::Denoise(
    const std::function<bool(const CanvasStep&)>& on_step) {
  RL_RETURN_IF_ERROR(Begin());
  RL_RETURN_IF_ERROR(loop_->Run(*model_, [this, &on_step](const CanvasStep& step) {
    return (!on_step || on_step(step)) && !feeder_.cancelled();
  }));
  return Canvas{loop_->best(), loop_->steps_taken(), loop_->finished()};
}

Result<CanvasGenerator::Progress> CanvasGenerator::Advance(int64_t max_tokens) {
  if (!loop_ || loop_->finished()) RL_RETURN_IF_ERROR(Begin());
  Progress progress;
  RL_ASSIGN_OR_RETURN(progress.step, loop_->Step(*model_));
  progress.finished = loop_->finished();
  if (!progress.finished) return progress;
  ++canvases_;
  TakeText(max_tokens, progress);
  if (!progress.end) RL_RETURN_IF_ERROR(Feed(loop_->best()));
  return progress;
}

void CanvasGenerator::TakeText(int64_t max_tokens, Progress& progress) {
  const std::vector<int32_t>& canvas = loop_->best();
  // An end token and the tokens after it are not text.
  const auto end = std::ranges::find_first_of(canvas, options_.end_tokens);
  auto taken = static_cast<int64_t>(end - canvas.begin());
  const bool ended = end != canvas.end() && (max_tokens < 0 || tokens_ + taken <= max_tokens);
  if (max_tokens >= 0) taken = std::min(taken, max_tokens - tokens_);
  progress.text.assign(canvas.begin(), canvas.begin() + static_cast<std::ptrdiff_t>(taken));
  tokens_ += taken;
  if (ended) {
    progress.end = StopReason::kEndOfGeneration;
  } else if (max_tokens >= 0 && tokens_ >= max_tokens) {
    progress.end = StopReason::kMaxTokens;
  } else if (!Fits(2 * options_.canvas_length)) {
    progress.end = StopReason::kContextFull;
  }
}

}  // namespace rullama

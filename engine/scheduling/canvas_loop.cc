#include "engine/scheduling/canvas_loop.h"

#include <iterator>
#include <utility>

namespace rullama {
namespace {

Draft DraftOf(int64_t canvas, const CanvasStep& step) {
  CanvasDraft draft{.canvas = canvas,
                    .temperature = step.temperature,
                    .mean_entropy = step.mean_entropy,
                    .ids = step.reply->best,
                    .entropy = step.reply->entropy};
  draft.accepted.reserve(step.reply->accepted.size());
  for (const float mark : step.reply->accepted) draft.accepted.push_back(mark != 0 ? 1 : 0);
  return {.step = step.index + 1, .max_steps = step.max_steps, .canvas = std::move(draft)};
}

}  // namespace

Status CanvasLoop::Prepare(const Job& job) {
  if (job.max_tokens == 0) return OkStatus();
  const CanvasGeneratorOptions& generator = options_.canvas->generator;
  return session_.Prepare(generator.canvas_length, DemandMode::kAllRows, generator.graphs.denoise);
}

Status CanvasLoop::Begin(int32_t slot) {
  RunningJob& running = jobs_.At(slot);
  const Job& job = *running.job;
  if (job.max_tokens == 0) {
    jobs_.End(slot, StopReason::kMaxTokens);
    return OkStatus();
  }
  RL_ASSIGN_OR_RETURN(running.canvases, make_writer_(slot, job));
  return OkStatus();
}

void CanvasLoop::ChooseTurn() {
  if (turn_) {
    const RunningJob* running = jobs_.Find(turn_->slot);
    if (running != nullptr && running->number == turn_->number) return;
    turn_.reset();
  }
  const auto slot = jobs_.FirstFrom(next_slot_, [](const RunningJob& running) {
    return running.canvases && !running.job->channel->full();
  });
  if (!slot) return;
  turn_ = {*slot, jobs_.At(*slot).number};
  next_slot_ = *slot + 1;
}

bool CanvasLoop::Step() {
  ChooseTurn();
  if (!turn_) return false;
  const int32_t slot = turn_->slot;
  RunningJob& running = jobs_.At(slot);
  const EngineClock::time_point begin = EngineClock::now();
  const auto progress = running.canvases->Advance(running.job->max_tokens);
  counters_.CountStep(&EngineStats::denoise,
                      static_cast<size_t>(options_.canvas->generator.canvas_length), begin);
  if (progress) {
    TakeProgress(slot, *progress);
  } else {
    jobs_.EndFailed(slot, progress.error());
  }
  return true;
}

void CanvasLoop::TakeProgress(int32_t slot, const CanvasGenerator::Progress& progress) {
  RunningJob& running = jobs_.At(slot);
  const CanvasWriter& writer = *running.canvases;
  AnswerChannel& channel = *running.job->channel;
  channel.Push(DraftOf(writer.canvases() - (progress.finished ? 1 : 0), progress.step));
  if (!progress.finished) return;
  if (!progress.text.empty()) channel.Push(DrawnCanvas{progress.text});
  running.drawn += std::ssize(progress.text);
  if (progress.end) return jobs_.End(slot, *progress.end);
  for (const int32_t token : writer.canvas()) contents_.AppendDrawn(slot, token);
  turn_.reset();
}

}  // namespace rullama

// The part of Scheduler that denoises canvases.
#include <utility>

#include "engine/scheduler.h"

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

Status Scheduler::ReadForCanvases(int32_t slot, Running& running, std::span<const int32_t> chunk) {
  // Nothing is compiled between the first canvas and the last.
  if (running.job->max_tokens != 0) {
    RL_RETURN_IF_ERROR(session_.Prepare(options_.canvas->generator.canvas_length,
                                        DemandMode::kAllRows, options_.canvas->generator.denoise));
  }
  RL_RETURN_IF_ERROR(ReadRows(slot, running, chunk));
  TakeChunk(slot, running, chunk);
  std::vector<int32_t> writers = SharersOf(slot);
  RL_RETURN_IF_ERROR(Share(slot, writers));
  writers.insert(writers.begin(), slot);
  RL_ASSIGN_OR_RETURN(const SessionStats stats, session_.Stats());
  for (const int32_t writer : writers) {
    Running& of_writer = *slots_[static_cast<size_t>(writer)];
    if (of_writer.read < std::ssize(of_writer.job->prompt)) continue;  // reads the prompt itself
    of_writer.first_token = EngineClock::now();
    of_writer.after_prompt = stats;
    if (const Status begun = BeginCanvases(writer); !begun) Fail(writer, begun.error());
  }
  return OkStatus();
}

Status Scheduler::BeginCanvases(int32_t slot) {
  Running& running = *slots_[static_cast<size_t>(slot)];
  const Job& job = *running.job;
  if (job.max_tokens == 0) {
    End(slot, StopReason::kMaxTokens);
    return OkStatus();
  }
  RL_ASSIGN_OR_RETURN(auto random, MakeCanvasRandom(options_.canvas->random, job.sampling.seed,
                                                    job.sampling.stream));
  CanvasGeneratorOptions options = options_.canvas->generator;
  options.slot = slot;
  options.capacity = CapacityOf(job);
  running.canvases = std::make_unique<CanvasWriter>(session_, std::move(random), options);
  return OkStatus();
}

std::optional<int32_t> Scheduler::NextCanvas() {
  for (size_t turn = 0; turn < slots_.size(); ++turn) {
    const size_t slot = (next_canvas_ + turn) % slots_.size();
    const auto& running = slots_[slot];
    if (!running || !running->canvases || running->job->channel->full()) continue;
    next_canvas_ = slot + 1;
    return static_cast<int32_t>(slot);
  }
  return std::nullopt;
}

bool Scheduler::DenoiseStep() {
  if (!canvas_slot_) canvas_slot_ = NextCanvas();
  if (!canvas_slot_) return false;
  const int32_t slot = *canvas_slot_;
  Running& running = *slots_[static_cast<size_t>(slot)];
  const EngineClock::time_point begin = EngineClock::now();
  const auto progress = running.canvases->generator.Advance(running.job->max_tokens);
  CountStep(&EngineStats::denoise, static_cast<size_t>(options_.canvas->generator.canvas_length),
            begin);
  if (progress) {
    TakeProgress(slot, *progress);
  } else {
    EndFailed(slot, progress.error());
  }
  return true;
}

void Scheduler::TakeProgress(int32_t slot, const CanvasGenerator::Progress& progress) {
  Running& running = *slots_[static_cast<size_t>(slot)];
  const CanvasGenerator& generator = running.canvases->generator;
  AnswerChannel& channel = *running.job->channel;
  channel.Push(DraftOf(generator.canvases() - (progress.finished ? 1 : 0), progress.step));
  if (!progress.finished) return;
  if (!progress.text.empty()) channel.Push(DrawnCanvas{progress.text});
  running.drawn += std::ssize(progress.text);
  if (progress.end) return End(slot, *progress.end);
  for (const int32_t token : generator.canvas()) table_.AppendDrawn(slot, token);
  canvas_slot_.reset();
}

}  // namespace rullama

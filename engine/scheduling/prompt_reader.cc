#include "engine/scheduling/prompt_reader.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "engine/drafts/cut_points.h"
#include "engine/media/soft_row_ids.h"

namespace rullama {
namespace {

// Where it only matters that there is a mask.
constexpr std::array kSomeMask = {~uint32_t{0}};

// Whether a job has a prompt to read.
bool Waits(const RunningJob& running) {
  return !running.writes() && !running.reader && !running.job->channel->full();
}

// Notes that the first token of a writer is there; false if it still reads the prompt itself.
bool BeginWriting(RunningJob& writer, const SessionStats& stats) {
  if (!writer.has_read()) return false;
  writer.first_token = EngineClock::now();
  writer.after_prompt = stats;
  return true;
}

}  // namespace

PromptReader::PromptReader(Session& session, const SchedulerOptions& options,
                           SlotContents& contents, SlotJobs& jobs, CanvasLoop* canvases,
                           EngineCounters& counters)
    : session_(session),
      options_(options),
      contents_(contents),
      jobs_(jobs),
      canvases_(canvases),
      counters_(counters),
      batch_(session, options.graphs, options.vocabulary),
      media_cache_(options.media_bytes) {}

bool PromptReader::HasWork() const { return jobs_.FirstFrom(turn_, Waits).has_value(); }

bool PromptReader::ReadNext(ReadingPace& pace) {
  const auto slot = jobs_.FirstFrom(turn_, [this](const RunningJob& running) {
    return Waits(running) && running.read_round != round_;
  });
  if (!slot) return false;
  RunningJob& running = jobs_.At(*slot);
  const int64_t end = EndOfChunk(running), rows = end - running.read;
  if (!pace.MayRead(rows, EngineClock::now())) return false;
  running.read_round = round_;
  turn_ = *slot + 1;
  if (Read(*slot, end)) {
    pace.TakeChunk(rows);
  } else {
    pace.TakeOther();
  }
  return true;
}

bool PromptReader::Read(int32_t slot, int64_t end) {
  RunningJob& running = jobs_.At(slot);
  const std::span<const int32_t> prompt = running.job->prompt;
  const auto chunk =
      prompt.subspan(static_cast<size_t>(running.read), static_cast<size_t>(end - running.read));
  const auto encoded = EncodeNext(running, end);
  if (!encoded) {
    jobs_.EndFailed(slot, encoded.error());
    return false;
  }
  if (*encoded) return false;
  const EngineClock::time_point begin = EngineClock::now();
  const size_t rows = chunk.size();
  const Status status = ReadsChunks(running.job->kind) ? ReadChunk(slot, running, chunk)
                                                       : ReadForRows(slot, running, chunk);
  counters_.CountStep(&EngineStats::prompt, rows, begin);
  if (!status) jobs_.EndFailed(slot, status.error());
  return true;
}

int64_t PromptReader::EndOfChunk(const RunningJob& running) const {
  const Job& job = *running.job;
  const int64_t tokens = std::ssize(job.prompt);
  if (ReadsChunks(job.kind)) {
    const auto cut = std::ranges::upper_bound(job.cuts, running.read);
    const int64_t end = cut == job.cuts.end() ? tokens : *cut;
    if (job.prompt_logprobs < 0) return end;
    // The row after which the first token is drawn is a chunk of its own.
    const int64_t scored =
        std::min(end, running.read + session_.max_t(options_.graphs.logits->graph));
    return running.read + 1 < tokens ? std::min(scored, tokens - 1) : tokens;
  }
  return std::min(tokens,
                  running.read + session_.max_t((options_.graphs.*RowOutputOf(job.kind))->graph));
}

Result<bool> PromptReader::EncodeNext(RunningJob& running, int64_t end) {
  const Job& job = *running.job;
  while (const auto missing = running.media.Missing(running.read, end)) {
    const DecodedMedium& medium = running.media.medium(*missing);
    std::shared_ptr<const SoftTokens> soft;
    if (job.reuse_prefix) soft = media_cache_.Find(job.space.client, medium.hash);
    const bool found = soft != nullptr;
    if (!found) {
      RL_ASSIGN_OR_RETURN(soft, Encode(running, medium));
    }
    running.media.Take(*missing, std::move(soft));
    counters_.Update(
        [found](EngineStats& stats) { ++(found ? stats.media_hits : stats.media_misses); });
    if (!found) return true;
  }
  return false;
}

Result<std::shared_ptr<const SoftTokens>> PromptReader::Encode(RunningJob& running,
                                                               const DecodedMedium& medium) {
  const EngineClock::time_point begin = EngineClock::now();
  session_.WaitForSteps();  // the encoder uses the devices of the session
  RL_ASSIGN_OR_RETURN(SoftTokens encoded, options_.encoder->Encode(medium));
  auto soft = std::make_shared<const SoftTokens>(std::move(encoded));
  const double seconds = SecondsBetween(begin, EngineClock::now());
  running.encode_seconds += seconds;
  const Job& job = *running.job;
  if (job.reuse_prefix) media_cache_.Keep(job.space.client, soft);
  counters_.Update([seconds](EngineStats& stats) { stats.encode_seconds.Observe(seconds); });
  return soft;
}

Status PromptReader::ReadChunk(int32_t slot, RunningJob& running, std::span<const int32_t> chunk) {
  const bool generates = running.job->kind == Job::Kind::kGenerate;
  const bool last = running.read + std::ssize(chunk) == std::ssize(running.job->prompt);
  if (running.job->prompt_logprobs >= 0 && !last) return ReadScored(slot, running, chunk);
  if (last && generates) {
    PushScores(slot, running);
    return canvases_ != nullptr ? ReadForCanvases(slot, running, chunk) : ReadAndDraw(slot, chunk);
  }
  if (running.read == running.reused && generates) {
    RowRequest draw{.slot = slot,
                    .sampling = running.job->sampling,
                    .top_logprobs = running.job->top_logprobs,
                    .adapters = running.job->space.adapters.get()};
    if (running.job->constraint.matcher) draw.sampling.mask = kSomeMask;
    RL_RETURN_IF_ERROR(PrepareDecode(running, draw));
  }
  RL_RETURN_IF_ERROR(ReadRows(slot, running, chunk));
  TakeChunk(slot, running, chunk);
  return last ? Save(slot) : OkStatus();
}

Status PromptReader::ReadScored(int32_t slot, RunningJob& running, std::span<const int32_t> chunk) {
  const Job& job = *running.job;
  RL_RETURN_IF_ERROR(
      batch_.Evaluate(&ProgramGraphs::logits, slot, chunk, job.space.adapters.get(), evaluated_));
  const std::span<const float> logits = evaluated_;
  const size_t vocabulary = logits.size() / chunk.size();
  for (size_t row = 0; row < chunk.size(); ++row) {
    const int32_t next = job.prompt[static_cast<size_t>(running.read) + row + 1];
    RL_ASSIGN_OR_RETURN(
        running.scores.emplace_back(),
        ScoreToken(logits.subspan(row * vocabulary, vocabulary), next, job.prompt_logprobs));
  }
  TakeChunk(slot, running, chunk);
  return OkStatus();
}

void PromptReader::PushScores(int32_t slot, RunningJob& running) {
  if (running.job->prompt_logprobs < 0) return;
  const PromptScores scores =
      std::make_shared<const std::vector<PromptLogprob>>(std::move(running.scores));
  std::vector<int32_t> answers = jobs_.SharersOf(slot);
  answers.push_back(slot);
  for (const int32_t answer : answers) {
    Job& job = *jobs_.At(answer).job;
    job.channel->Push(scores);
    job.prompt_logprobs = -1;
  }
}

Status PromptReader::ReadRows(int32_t slot, RunningJob& running, std::span<const int32_t> chunk) {
  if (std::ranges::none_of(chunk, IsSoftRow)) {
    RL_RETURN_IF_ERROR(batch_.Read(slot, chunk, {}, running.job->space.adapters.get()));
    return OkStatus();
  }
  RL_RETURN_IF_ERROR(
      batch_.ReadMedia(slot, chunk, running.media.rows(), running.job->space.adapters.get()));
  running.media.Drop(running.read + std::ssize(chunk));
  return OkStatus();
}

Status PromptReader::ReadAndDraw(int32_t slot, std::span<const int32_t> chunk) {
  std::vector<int32_t> writers = jobs_.SharersOf(slot);
  if (chunk.size() == 1) {
    // The plan of one row has one result: the others read the last chunk themselves.
    RL_RETURN_IF_ERROR(Share(slot, writers));
    writers.clear();
  }
  writers.insert(writers.begin(), slot);
  std::vector<RowRequest> draws;
  draws.reserve(writers.size());
  for (const int32_t writer : writers) {
    RL_ASSIGN_OR_RETURN(const RowRequest draw, DrawOf(writer));
    draws.push_back(draw);
  }
  RL_RETURN_IF_ERROR(PrepareDecode(jobs_.At(slot), draws.front()));
  RL_ASSIGN_OR_RETURN(const auto results, batch_.Read(slot, chunk, draws, draws.front().adapters));
  TakeChunk(slot, jobs_.At(slot), chunk);
  RL_RETURN_IF_ERROR(Share(slot, std::span(writers).subspan(1)));
  RL_ASSIGN_OR_RETURN(const SessionStats stats, session_.Stats());
  for (size_t i = 0; i < writers.size(); ++i) {
    if (!BeginWriting(jobs_.At(writers[i]), stats)) continue;
    jobs_.TakeToken(writers[i], session_.past(writers[i]), results[i]);
  }
  return OkStatus();
}

Status PromptReader::ReadForCanvases(int32_t slot, RunningJob& running,
                                     std::span<const int32_t> chunk) {
  RL_RETURN_IF_ERROR(canvases_->Prepare(*running.job));
  RL_RETURN_IF_ERROR(ReadRows(slot, running, chunk));
  TakeChunk(slot, running, chunk);
  std::vector<int32_t> writers = jobs_.SharersOf(slot);
  RL_RETURN_IF_ERROR(Share(slot, writers));
  writers.insert(writers.begin(), slot);
  RL_ASSIGN_OR_RETURN(const SessionStats stats, session_.Stats());
  for (const int32_t writer : writers) {
    if (!BeginWriting(jobs_.At(writer), stats)) continue;
    if (const Status begun = canvases_->Begin(writer); !begun) jobs_.Fail(writer, begun.error());
  }
  return OkStatus();
}

void PromptReader::TakeChunk(int32_t slot, RunningJob& running, std::span<const int32_t> chunk) {
  const Job& job = *running.job;
  running.read += std::ssize(chunk);
  contents_.Append(slot, chunk);
  const bool at_cut = std::ranges::binary_search(job.cuts, running.read);
  const bool keeps = job.reuse_prefix && !running.after_answer && at_cut;
  if (keeps && IsSnapshotPoint(job.cuts, running.read, options_.chunk)) {
    contents_.Keep(slot, std::span(job.prompt).first(static_cast<size_t>(running.read)), job);
  }
  job.channel->Push(ReadProgress{running.read, std::ssize(job.prompt), running.reused});
}

Status PromptReader::Save(int32_t slot) {
  const Job& job = *jobs_.At(slot).job;
  RL_ASSIGN_OR_RETURN(Snapshot snapshot, session_.Save(slot, session_.past(slot)));
  job.channel->Push(StoredSnapshot{std::move(snapshot), job.prompt});
  jobs_.End(slot, StopReason::kEndOfGeneration);
  return OkStatus();
}

std::optional<ProgramGraphs::RowOutput> ProgramGraphs::*PromptReader::RowOutputOf(Job::Kind kind) {
  return kind == Job::Kind::kEmbed ? &ProgramGraphs::hidden : &ProgramGraphs::logits;
}

Status PromptReader::ReadForRows(int32_t slot, RunningJob& running,
                                 std::span<const int32_t> chunk) {
  const Job& job = *running.job;
  RL_RETURN_IF_ERROR(
      batch_.Evaluate(RowOutputOf(job.kind), slot, chunk, job.space.adapters.get(), evaluated_));
  const int64_t first = running.read;
  running.read += std::ssize(chunk);
  if (job.kind == Job::Kind::kEmbed) {
    const size_t width = evaluated_.size() / chunk.size();
    running.sum.resize(width);
    for (size_t i = 0; i < evaluated_.size(); ++i) running.sum[i % width] += evaluated_[i];
    if (running.has_read()) job.channel->Push(ResultRows{0, std::move(running.sum)});
  } else {
    job.channel->Push(ResultRows{first, evaluated_});
  }
  if (running.has_read()) jobs_.End(slot, StopReason::kEndOfGeneration);
  return OkStatus();
}

Status PromptReader::PrepareDecode(const RunningJob& running, const RowRequest& draw) {
  if (canvases_ != nullptr || running.job->max_tokens == 0) return OkStatus();
  return batch_.PrepareDecode(draw);
}

Result<RowRequest> PromptReader::DrawOf(int32_t slot) {
  RunningJob& running = jobs_.At(slot);
  const auto last = static_cast<int32_t>(std::ssize(running.job->prompt) - 1);
  RL_ASSIGN_OR_RETURN(const RowSampling sampling, jobs_.SamplingOf(running, last));
  return RowRequest{.slot = slot,
                    .sampling = sampling,
                    .top_logprobs = running.job->top_logprobs,
                    .adapters = running.job->space.adapters.get()};
}

Status PromptReader::Share(int32_t slot, std::span<const int32_t> sharers) {
  if (sharers.empty()) return OkStatus();
  const RunningJob& running = jobs_.At(slot);
  RL_ASSIGN_OR_RETURN(const int64_t held,
                      contents_.Copy(slot, sharers, running.job->prompt, running.read));
  for (const int32_t sharer : sharers) {
    RunningJob& other = jobs_.At(sharer);
    other.read = held;
    other.media.Drop(held);
    other.reused = std::min(other.reused, held);
    other.job->channel->Push(ReadProgress{other.read, std::ssize(other.job->prompt), other.reused});
    other.reader.reset();
  }
  return OkStatus();
}

}  // namespace rullama

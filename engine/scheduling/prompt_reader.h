// Reads the prompts of jobs, a chunk of each in turn, with the pictures and sounds in them, and
// draws the first token of their answers. A chunk is a step of its own: what its rows give may
// depend on the rows that a step has (adr/0045).
//
// Ownership: borrows all but its buffers. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "engine/media/media_cache.h"
#include "engine/scheduling/batch_session.h"
#include "engine/scheduling/canvas_loop.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/reading_pace.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_contents.h"
#include "engine/scheduling/slot_jobs.h"

namespace rullama {

class PromptReader {
 public:
  // `canvases`: null for a model that does not denoise.
  PromptReader(Session& session, const SchedulerOptions& options, SlotContents& contents,
               SlotJobs& jobs, CanvasLoop* canvases, EngineCounters& counters);

  // Whether a prompt waits for being read.
  [[nodiscard]] bool HasWork() const;
  // Begins a round, in which a chunk of each prompt may be read.
  void BeginRound() { ++round_; }
  // Reads a chunk of the next prompt of the round, or encodes a medium that it needs. Returns false
  // if all were read, or the pace does not allow it.
  bool ReadNext(ReadingPace& pace);

  // Adds what the media cache holds and has done.
  void AddTo(EngineStats& stats) const { media_cache_.AddTo(stats); }

 private:
  // Reads the next chunk of the slot, up to position `end`, or encodes a medium that it needs.
  // Returns whether it was a chunk.
  bool Read(int32_t slot, int64_t end);
  // The position after the next chunk of a job's prompt.
  [[nodiscard]] int64_t EndOfChunk(const RunningJob& running) const;
  // Gets the soft tokens of media with rows before `end` that the job is going to read: those in
  // the cache, and of the others one. Returns whether one was encoded.
  Result<bool> EncodeNext(RunningJob& running, int64_t end);
  Result<std::shared_ptr<const SoftTokens>> Encode(RunningJob& running,
                                                   const DecodedMedium& medium);

  // A chunk of a job of kGenerate or kSave.
  Status ReadChunk(int32_t slot, RunningJob& running, std::span<const int32_t> chunk);
  // A chunk of a prompt whose tokens are scored, but not the last one.
  Status ReadScored(int32_t slot, RunningJob& running, std::span<const int32_t> chunk);
  // Hands the scores to the answers to the prompt.
  void PushScores(int32_t slot, RunningJob& running);
  // A chunk after which nothing is drawn, and whose soft tokens are there.
  Status ReadRows(int32_t slot, RunningJob& running, std::span<const int32_t> chunk);
  // The last chunk of a prompt: draws the first token of its answers.
  Status ReadAndDraw(int32_t slot, std::span<const int32_t> chunk);
  // The last chunk of a prompt that canvases follow.
  Status ReadForCanvases(int32_t slot, RunningJob& running, std::span<const int32_t> chunk);
  // After a chunk was read.
  void TakeChunk(int32_t slot, RunningJob& running, std::span<const int32_t> chunk);
  // The end of a job of kSave.
  Status Save(int32_t slot);

  // A chunk of a job of kEmbed or kLogits, and the rows that it wants.
  Status ReadForRows(int32_t slot, RunningJob& running, std::span<const int32_t> chunk);
  // The graphs that give these rows.
  [[nodiscard]] static std::optional<ProgramGraphs::RowOutput> ProgramGraphs::*RowOutputOf(
      Job::Kind kind);

  // Compiles the plan that decodes after a prompt, unless nothing will. Called before the first and
  // the last chunk: some devices continue with it while the prompt is read.
  Status PrepareDecode(const RunningJob& running, const RowRequest& draw);
  // The draw of the first token of a slot's job. Errors: those of SlotJobs::SamplingOf().
  Result<RowRequest> DrawOf(int32_t slot);
  // Lets slots hold what `slot` has read of their prompt, and read the rest themselves. Without
  // memory for a copy they read all of it.
  Status Share(int32_t slot, std::span<const int32_t> sharers);

  Session& session_;
  const SchedulerOptions& options_;
  SlotContents& contents_;
  SlotJobs& jobs_;
  CanvasLoop* canvases_;
  EngineCounters& counters_;
  BatchSession batch_;
  MediaCache media_cache_;
  int32_t turn_ = 0;  // the slot whose turn it is
  uint64_t round_ = 1;
  std::vector<float> evaluated_;  // rows of ReadForRows; kept for its memory
};

}  // namespace rullama

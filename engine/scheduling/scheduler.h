// Runs the jobs of many requests on the slots of one session, on a thread of its own.
//
// Each round runs one decode step over all slots that write (TokenDecoder) or one step of a canvas
// (CanvasLoop), and reads a chunk of each prompt that waits, or encodes a picture or sound of it
// (PromptReader), as far as the time between two tokens allows (ReadingPace). So a long prompt
// costs the others one chunk per token. Before each chunk it takes new jobs and gives free slots to
// the first of them (Admission). Chunks and decode steps are separate steps, because the bytes of a
// row may depend on the kernels that a step of this size takes.
//
// Ownership: borrows the session, which only this object uses until it is destroyed. Thread safety:
// as JobRunner. Errors reach the channel of the job that they concern.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/job.h"
#include "engine/scheduling/admission.h"
#include "engine/scheduling/canvas_loop.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/prompt_reader.h"
#include "engine/scheduling/reading_pace.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_contents.h"
#include "engine/scheduling/slot_jobs.h"
#include "engine/scheduling/token_decoder.h"
#include "engine/scheduling/waiting_jobs.h"

namespace rullama {

class Scheduler final : public JobRunner {
 public:
  // Starts the thread. `wakeup` is shared with the channels of all jobs.
  Scheduler(Session& session, SchedulerOptions options, std::shared_ptr<Wakeup> wakeup);
  // Ends all jobs as cancelled and joins the thread.
  ~Scheduler() override;

  void Submit(std::unique_ptr<Job> job) override;
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] std::vector<SlotActivity> slots() const override { return counters_.ReadSlots(); }

 private:
  void Loop();
  // Waits for work. Snapshots are stored on disk meanwhile.
  void WaitForWork();
  // Stores the others, at the end.
  void StoreAll();
  void TakeNewJobs();
  void EndCancelled();
  // Notes whether answers got tokens in this round. Warns of chunks that pass the limit, once.
  void TakeTime(bool wrote);
  // Publishes what stats() tells of this round.
  void CountSlots();

  Session& session_;
  const SchedulerOptions options_;
  std::shared_ptr<Wakeup> wakeup_;
  EngineCounters counters_;
  WaitingJobs waiting_;
  SlotContents contents_;
  SlotJobs jobs_;
  Admission admission_;
  std::optional<CanvasLoop> canvases_;   // of a model that denoises
  std::optional<TokenDecoder> decoder_;  // of any other
  PromptReader reader_;
  ReadingPace pace_;
  bool reads_ = false;        // the round may read chunks: no decode step is in flight
  int64_t decoding_ = 0;      // answers of the next decode step
  int64_t advices_ = 0;       // of the pace so far
  mutable std::mutex mutex_;  // guards submitted_
  std::vector<std::unique_ptr<Job>> submitted_;
  std::atomic<bool> stopping_ = false;
  std::chrono::milliseconds idle_wait_{1'000};  // before the next snapshot is stored
  std::thread thread_;
};

}  // namespace rullama

// Runs the jobs of many requests on the slots of one session, on a thread of its own.
//
// Each round takes new jobs, gives free slots to the first of them, runs one decode step over all
// slots that write, and one chunk of one slot that reads a prompt, in turn, or encodes one picture
// or sound of it. So a long prompt costs the others one of these per token at most. The two are
// separate steps, because the bytes of a row may depend on the kernels that a step of this size
// takes.
//
// A session with lanes (session.h) decodes in as many groups of slots. While the step of a group
// runs, the results of another are taken, its next tokens chosen and its next step started, so that
// each device has a step (adr/0019). A round then takes the results of one group. A round that
// reads a chunk takes those of all groups first. A job that is cancelled while its slot has a step
// in flight ends behind it.
//
// With drafts (docs/drafts.md) a slot has several rows in a decode step: the token drawn last and
// those that are guessed to follow it. Each row draws its token with the request's settings and the
// random number of its position. The rows whose token was guessed stay, the others are given up.
//
// With a model that denoises, a round has one step of one canvas in place of the decode step
// (canvas_generator.h). A canvas is denoised to its end; then it is the next slot's turn.
//
// Ownership: borrows the session. Thread safety: Submit() and stats() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "core/config/config.h"
#include "core/runtime/session.h"
#include "engine/batch_session.h"
#include "engine/canvas_generator.h"
#include "engine/engine_observer.h"
#include "engine/job.h"
#include "engine/media_cache.h"
#include "engine/media_encoder.h"
#include "engine/model_drafter.h"
#include "engine/prefix_cache.h"
#include "engine/prompt_encoder.h"
#include "engine/slot_table.h"

namespace rullama {

struct DraftOptions {
  int64_t most = 0;                 // tokens of a draft; 0: there are no drafts
  int64_t least = 0;                // a shorter draft is not used
  bool lookup = false;              // lookup_draft.h
  ModelDrafter* drafter = nullptr;  // borrowed; drafts where the lookup finds nothing
};

// The most rows of a decode step of so many slots.
[[nodiscard]] int64_t DecodeRows(int64_t slots, int64_t most_drafted);

// For a model that denoises.
struct CanvasOptions {
  CanvasGeneratorOptions generator = {};
  DiffusionRandom random = DiffusionRandom::kPhilox;
};

struct SchedulerOptions {
  ProgramGraphs graphs = {};  // of the session: a batch's, or those of a model that denoises
  int64_t slots = 1;
  int64_t capacity = 0;  // tokens per slot
  int64_t vocabulary = 0;
  int64_t chunk = 0;          // most rows between two cut points of a prompt
  uint64_t prefix_bytes = 0;  // of host memory for snapshots of prompts
  uint64_t media_bytes = 0;   // of host memory for soft tokens of recent media
  DraftOptions drafts = {};
  std::optional<CanvasOptions> canvas = {};
  std::vector<int32_t> end_tokens = {};
  MediaEncoder* encoder = nullptr;                          // of the media of jobs; borrowed
  bool whole_pictures = false;                              // as MediaFacts::whole_pictures
  std::function<void(std::string_view text)> warn = {};     // called on the thread of the scheduler
  std::shared_ptr<const std::atomic<bool>> cancelled = {};  // as HostHooks::cancelled
  EngineObserver* observer = nullptr;                       // as HostHooks::observer
};

class Scheduler final : public JobRunner {
 public:
  // Starts the thread. `wakeup` is shared with the channels of all jobs.
  Scheduler(Session& session, SchedulerOptions options, std::shared_ptr<Wakeup> wakeup);
  // Ends all jobs as cancelled and joins the thread.
  ~Scheduler() override;

  void Submit(std::unique_ptr<Job> job) override;
  [[nodiscard]] EngineStats stats() const override;

 private:
  // Writes the canvases of a job.
  struct CanvasWriter {
    CanvasWriter(Session& session, std::unique_ptr<CanvasRandom> numbers,
                 CanvasGeneratorOptions options)
        : random(std::move(numbers)), generator(session, *random, std::move(options)) {}

    std::unique_ptr<CanvasRandom> random;
    CanvasGenerator generator;
  };

  // A job that has a slot.
  struct Running {
    std::unique_ptr<Job> job;
    int64_t read = 0;    // rows of the prompt in the slot
    int64_t reused = 0;  // of these, found there or in the prefix cache
    // The slot whose prompt this job shares, until that slot has read it.
    std::optional<int32_t> reader;
    bool goes_on = false;          // behind drawn rows, so that the prefix cache keeps none of it
    uint64_t number = 0;           // of the jobs that got a slot
    std::optional<int32_t> token;  // drawn, not yet in the slot
    bool in_step = false;          // of a group that is started
    uint64_t last_step = 0;        // the number of its last decode step
    std::unique_ptr<CanvasWriter> canvases;  // once the prompt is read, of a model that denoises
    int64_t drawn = 0;                       // tokens handed out
    std::vector<int32_t> sequence;           // with drafts: prompt and answer so far
    int64_t draft_length = 0;                // of the next draft, at most
    std::vector<int32_t> draft;              // of the next step
    DraftCounts drafts;
    std::vector<float> sum;     // of an embedding
    PromptEncoder media;        // of the job, which has none of its own any more
    double encode_seconds = 0;  // spent on its media
    EngineClock::time_point started;
    EngineClock::time_point first_token;
    SessionStats after_prompt;

    [[nodiscard]] bool writes() const { return token || canvases; }
  };

  // Slots whose tokens are drawn in one step, which may be in flight.
  struct Group {
    Group(Session& session, const ProgramGraphs& graphs, int64_t vocabulary, StepLane lane)
        : batch(session, graphs, vocabulary, lane) {}

    BatchSession batch;
    bool started = false;
    EngineClock::time_point begin;
    // The slots and rows of the step; kept for their memory.
    std::vector<int32_t> slots;
    std::vector<RowRequest> rows;
  };

  void Loop();
  void TakeNewJobs();
  void Admit();
  // The slot for a job, some of whose prompt it may hold; one is free.
  [[nodiscard]] SlotTable::Choice ChooseSlot(const Job& job) const;
  // Gives the slot to a job.
  void Occupy(const SlotTable::Choice& choice, std::unique_ptr<Job> job,
              std::optional<int32_t> reader);
  // Lets the slot hold what is known of its job's prompt, of which it holds `held` rows.
  Status Begin(int32_t slot, int64_t held);
  // The job whose turn it is to get a slot: the first one of the client that has waited longest
  // since its last. Some job waits.
  [[nodiscard]] std::deque<std::unique_ptr<Job>>::iterator NextWaiting();
  [[nodiscard]] bool IsCancelled(const Job& job) const;
  void EndCancelled();
  // Publishes what stats() tells of this round.
  void CountSlots();
  void CountStep(StepStats EngineStats::*kind, size_t rows, EngineClock::time_point begin);
  // Whether the rows of a slot up to a position can be reused, and their reuse.
  [[nodiscard]] bool CanReturn(int32_t slot, int64_t position) const;
  Status Return(int32_t slot, int64_t position);
  // The slots whose jobs wait for `slot` to read their prompt.
  [[nodiscard]] std::vector<int32_t> SharersOf(int32_t slot) const;
  // Lets the slot, which holds `held` rows of its job's prompt, hold those that the prefix cache
  // has.
  Status CopyPrefix(int32_t slot, int64_t held);
  // Lets them hold what `slot` has read of their prompt, and read the rest themselves. Without
  // memory for a copy they read all of it.
  Status Share(int32_t slot, std::span<const int32_t> sharers);
  // The most tokens that prompt and answer may have.
  [[nodiscard]] int64_t CapacityOf(const Job& job) const;
  // The settings of the next draw, with its mask. `position`: of the row it is drawn behind.
  // Errors: constraint.dead_end.
  Result<RowSampling> SamplingOf(Running& running, int32_t position);
  // The same for a draw after `drawn` tokens, with the mask of `matcher`.
  Result<RowSampling> SamplingOf(const Job& job, std::optional<constraint::Matcher>& matcher,
                                 int32_t position, int64_t drawn);
  // Starts the step of each group that has none, and takes the results of the group that was
  // started first, or those of all. Returns whether there was something to do.
  bool DecodeStep(bool all);
  // Starts a step of the slots that have waited longest for one: an equal share for each group.
  // Returns whether some slot waited.
  bool StartGroup(Group& group);
  void ChooseSlots(Group& group);
  void FinishGroup(Group& group);
  // Adds the rows of a slot to the step. Errors: as SamplingOf().
  Status AddRows(Group& group, int32_t slot);
  // Adds a row for each token of the slot's draft, up to one that the answer may not have.
  void AddDraftRows(Group& group, int32_t slot);
  // Takes the results of a slot's rows, of which `first` is the first. Returns the row behind them.
  size_t TakeRows(std::span<const RowRequest> rows, size_t first,
                  std::span<const RowResult> results);
  // Sets the drafts of slots that are about to write. Errors: those of the draft model.
  Status MakeDrafts(std::span<const int32_t> writing);
  // The tokens that a draft of a slot may have.
  [[nodiscard]] int64_t MostDrafted(int32_t slot) const;
  void CountDraft(Running& running, int64_t drafted, int64_t accepted);
  bool DenoiseStep();
  // The slot whose turn it is to begin a canvas.
  [[nodiscard]] std::optional<int32_t> NextCanvas();
  // Reads the last chunk of a prompt behind which canvases follow.
  Status ReadForCanvases(int32_t slot, Running& running, std::span<const int32_t> chunk);
  // Lets a slot that has read its prompt write canvases, or ends its job if that wants none.
  Status BeginCanvases(int32_t slot);
  // Hands out what a step of a canvas has given.
  void TakeProgress(int32_t slot, const CanvasGenerator::Progress& progress);
  // The slot whose turn it is to read a chunk of its prompt.
  [[nodiscard]] std::optional<int32_t> NextReader() const;
  void ReadChunk(int32_t slot);
  // Gets the soft tokens of media with rows in front of `end` that the job is going to read: those
  // in the cache, and of the others one. Returns whether one was encoded.
  Result<bool> EncodeNext(Running& running, int64_t end);
  Result<std::shared_ptr<const SoftTokens>> Encode(Running& running, const DecodedMedium& medium);
  Status ReadForGeneration(int32_t slot, Running& running, std::span<const int32_t> chunk);
  // Compiles the plan that decodes behind a prompt, unless nothing will. Called before the first
  // and the last chunk: some devices go on with it while the prompt is read.
  Status PrepareDecode(const Running& running, const RowRequest& draw);
  // The draw of a job's first token from the row that `slot` reads last. Errors: as SamplingOf().
  Result<RowRequest> DrawOf(int32_t slot, Running& running);
  // Reads a chunk behind which nothing is drawn, and whose soft tokens are there.
  Status ReadRows(int32_t slot, Running& running, std::span<const int32_t> chunk);
  // Reads the last chunk of a prompt and draws the first token of its answers.
  Status ReadAndDraw(int32_t slot, std::span<const int32_t> chunk);
  // After a chunk was read.
  void TakeChunk(int32_t slot, Running& running, std::span<const int32_t> chunk);
  Status ReadForRows(int32_t slot, Running& running, std::span<const int32_t> chunk);
  // The rows that such a job wants.
  [[nodiscard]] const ProgramGraphs::RowOutput& RowOutputOf(Job::Kind kind) const;
  // The ends of jobs of kSave and kLoad.
  Status Save(int32_t slot);
  Status Load(int32_t slot);
  // Hands out a token that was drawn behind the first `past` rows of the slot, or ends the job if
  // it was the last.
  void TakeResult(int32_t slot, int64_t past, const RowResult& result);
  // The position behind the next chunk of a job's prompt.
  [[nodiscard]] int64_t EndOfChunk(const Running& running) const;
  void End(int32_t slot, StopReason reason);
  // Ends a job whose step has failed: as cancelled if the device was told to stop, so that the rows
  // of the steps before stay, else with the error.
  void EndFailed(int32_t slot, const Error& error);
  // Ends the job with an error; the slot's rows are given up.
  void Fail(int32_t slot, const Error& error);
  void Free(int32_t slot);
  // Tells the observer of the job that leaves the slot.
  void Observe(int32_t slot) const;
  [[nodiscard]] bool IsEnd(int32_t token) const;

  Session& session_;
  SchedulerOptions options_;
  std::shared_ptr<Wakeup> wakeup_;
  BatchSession batch_;  // reads prompts
  std::deque<Group> groups_;
  std::deque<Group*> started_groups_;  // in the order in which they were started
  SlotTable table_;
  PrefixCache prefixes_;
  MediaCache media_cache_;
  std::vector<std::optional<Running>> slots_;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::map<uint64_t, uint64_t> last_turns_;  // by client: when it last got a slot
  uint64_t turns_ = 0;
  uint64_t started_ = 0;                // jobs that got a slot
  uint64_t steps_ = 0;                  // decode steps that were started
  size_t next_reader_ = 0;              // the slot whose turn it is to read
  size_t next_canvas_ = 0;              // the slot whose turn it is to begin a canvas
  std::optional<int32_t> canvas_slot_;  // has a canvas that is begun
  // Buffers of a decode step, kept for their memory.
  std::vector<DraftRequest> drafts_;
  std::deque<std::optional<constraint::Matcher>> matchers_;  // of the rows of drafts
  std::vector<float> evaluated_;  // rows of ReadForRows; kept for its memory
  mutable std::mutex mutex_;      // guards submitted_ and stats_
  std::vector<std::unique_ptr<Job>> submitted_;
  EngineStats stats_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace rullama

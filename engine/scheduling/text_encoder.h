// Runs the jobs of an encoder, on a thread of its own. Texts that wait share a step, which has all
// rows of each; the mean of a text's rows goes through the layers that follow it. There are no
// slots that texts wait for and no caches. The bytes of a vector depend on the text alone:
// attention does not see other texts, and steps of all sizes are of one plan (docs/numerics.md,
// "Texts of a step").
//
// Ownership: borrows the session, which only this object uses until it is destroyed. Thread safety:
// as JobRunner. Errors reach the channel of the job that they concern.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/runtime/session.h"
#include "core/runtime/soft_rows.h"
#include "engine/job.h"
#include "engine/media/media_encoder.h"
#include "engine/model_program.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/text_pack.h"
#include "models/common/facts.h"

namespace rullama {

class TextEncoder final : public JobRunner {
 public:
  struct Options {
    ProgramGraphs graphs;  // of the program of the session, which is an encoder's
    int64_t width = 0;     // of the residual stream
    EncoderFacts facts = {};
    int64_t shared_rows = 1;          // of a step that several texts share, at most
    int64_t text_alignment = 1;       // of the first rows of texts in a step
    int64_t shared_means = 1;         // of a step of the layers after them, at most
    MediaEncoder* encoder = nullptr;  // of the media of jobs; borrowed
    std::shared_ptr<const std::atomic<bool>> cancelled = {};  // as HostHooks::cancelled
  };

  // Starts the thread. `wakeup` is shared with the channels of all jobs.
  TextEncoder(Session& session, Options options, std::shared_ptr<Wakeup> wakeup);
  // Ends all jobs as cancelled and joins the thread.
  ~TextEncoder() override;

  // Takes jobs of kind kEmbed. The result is the vector before it is scaled to length 1.
  void Submit(std::unique_ptr<Job> job) override;
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] std::vector<SlotActivity> slots() const override { return counters_.ReadSlots(); }

 private:
  using Jobs = std::vector<std::unique_ptr<Job>>;

  void Loop();
  // Those that the next step is for: texts that fit pack_, or one job with media. Empty: none
  // waits.
  Jobs TakeJobs();
  void Run(const Jobs& jobs);
  // Runs the step of some jobs, and copies what it gives for its rows to rows_.
  Status ReadRows(const Jobs& jobs);
  // Sets the inputs for the soft rows of a job, and gives their places in its step token 0.
  Status SetSoftRows(const Job& job, StepRows& step);
  // The vectors of the texts whose rows are in rows_.
  std::vector<Result<std::vector<float>>> EmbeddingsOf(const Jobs& jobs);
  // Appends the mean of rows [first, first + count) of rows_ to means_.
  void AddMean(int64_t first, int64_t count);
  // Runs the layers after the means for `count` of means_ from `first` on; their results are
  // embeddings_.
  Status RunHead(size_t first, size_t count);

  Session& session_;
  const Options options_;
  SoftRowInputs soft_inputs_;
  std::shared_ptr<Wakeup> wakeup_;
  mutable EngineCounters counters_;
  mutable std::mutex mutex_;  // guards waiting_
  std::deque<std::unique_ptr<Job>> waiting_;
  std::atomic<bool> stopping_ = false;
  int64_t taken_ = 0;  // texts, on the thread
  TextPack pack_;      // of the step
  // Memory that is reused from step to step.
  StepRows step_;
  std::vector<int32_t> last_seen_;
  std::vector<float> rows_;
  std::vector<double> sums_;
  std::vector<float> means_, embeddings_;  // one after another
  std::thread thread_;
};

}  // namespace rullama

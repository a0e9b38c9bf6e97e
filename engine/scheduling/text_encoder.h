// Runs the jobs of an encoder, on a thread of its own: each text is one step of all its rows, whose
// mean goes through the layers that follow it. There are no slots that texts wait for and no
// caches. The bytes of a vector depend on the text alone.
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
#include "models/common/facts.h"

namespace rullama {

class TextEncoder final : public JobRunner {
 public:
  // Starts the thread. `graphs`: of the program of the session, which is an encoder's. `wakeup` is
  // shared with the channels of all jobs.
  // `encoder`: of the media of jobs; borrowed.
  TextEncoder(Session& session, const ProgramGraphs& graphs, const ModelFacts& facts,
              MediaEncoder& encoder, std::shared_ptr<const std::atomic<bool>> cancelled,
              std::shared_ptr<Wakeup> wakeup);
  // Ends all jobs as cancelled and joins the thread.
  ~TextEncoder() override;

  // Takes jobs of kind kEmbed. The result is the vector before it is scaled to length 1.
  void Submit(std::unique_ptr<Job> job) override;
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] std::vector<SlotActivity> slots() const override { return counters_.ReadSlots(); }

 private:
  void Loop();
  void Run(Job& job);
  Result<std::vector<float>> Encode(const Job& job);
  // Sets the inputs for the soft rows of a job, and gives their places in the step token 0.
  Status SetSoftRows(const Job& job);
  // The mean of the rows that the last step has computed.
  Result<std::vector<float>> MeanOfRows(size_t rows);

  Session& session_;
  const ProgramGraphs graphs_;
  const int64_t width_;
  const EncoderFacts facts_;
  MediaEncoder& encoder_;
  SoftRowInputs soft_inputs_;
  std::shared_ptr<const std::atomic<bool>> cancelled_;  // as HostHooks::cancelled
  std::shared_ptr<Wakeup> wakeup_;
  mutable EngineCounters counters_;
  mutable std::mutex mutex_;  // guards waiting_
  std::deque<std::unique_ptr<Job>> waiting_;
  std::atomic<bool> stopping_ = false;
  int64_t taken_ = 0;  // texts, on the thread
  // Memory that is reused from text to text.
  StepRows step_;
  std::vector<int32_t> last_seen_;
  std::vector<float> rows_;
  std::thread thread_;
};

}  // namespace rullama

// Runs the jobs of a model that denoises, one after another, on a thread of its own: what one step
// of a canvas hands to the next exists once, not for each slot.
//
// Ownership: borrows the session, whose program is of GraphOutputs::kText for a model that
// denoises. Thread safety: Submit() from any thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/config/config.h"
#include "core/runtime/session.h"
#include "engine/canvas_generator.h"
#include "engine/job.h"

namespace rullama {

struct CanvasRunnerOptions {
  CanvasGeneratorOptions generator = {};
  DiffusionRandom random = DiffusionRandom::kPhilox;
  std::shared_ptr<const std::atomic<bool>> cancelled = {};  // as HostHooks::cancelled
};

class CanvasRunner final : public JobRunner {
 public:
  CanvasRunner(Session& session, CanvasRunnerOptions options, std::shared_ptr<Wakeup> wakeup);
  ~CanvasRunner() override;

  void Submit(std::unique_ptr<Job> job) override;
  [[nodiscard]] EngineStats stats() const override;

 private:
  void Loop();
  std::unique_ptr<Job> TakeJob();
  Result<RequestEnd> Run(const Job& job);
  // Leaves in the slot what it holds of the job's prompt, if the job asks for it, and returns the
  // number of tokens.
  size_t ReuseRows(const Job& job);
  // Reads the rest of a job's prompt behind what the slot holds, then denoises canvases. Leaves in
  // `end` the times and the statistics. Errors: those of CanvasGenerator; run.cancelled.
  Status Read(CanvasGenerator& generator, const Job& job, RequestEnd& end);
  Status Write(CanvasGenerator& generator, const Job& job, RequestEnd& end);
  // Cancels the job if the engine ends or its host wants it. Whether it is cancelled.
  bool TakeCancellation(const Job& job) const;

  Session& session_;
  CanvasRunnerOptions options_;
  std::shared_ptr<Wakeup> wakeup_;
  mutable std::mutex mutex_;  // guards waiting_ and stats_
  EngineStats stats_{.slots = 1};
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<int32_t> held_;  // the tokens whose rows the slot holds
  uint64_t holder_ = 0;        // the client who had them read
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace rullama

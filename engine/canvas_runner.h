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

#include "core/config/config.h"
#include "core/runtime/session.h"
#include "engine/canvas_generator.h"
#include "engine/job.h"

namespace rullama {

struct CanvasRunnerOptions {
  CanvasGeneratorOptions generator = {};
  DiffusionRandom random = DiffusionRandom::kPhilox;
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

  Session& session_;
  CanvasRunnerOptions options_;
  std::shared_ptr<Wakeup> wakeup_;
  mutable std::mutex mutex_;  // guards waiting_ and stats_
  EngineStats stats_{.slots = 1};
  std::deque<std::unique_ptr<Job>> waiting_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace rullama

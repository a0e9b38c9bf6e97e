// Runs several steps at once on a row of workers, one thread for each device of a session. A step
// is cut into segments, which run one after another, each on its worker. A worker runs one segment
// at a time, in the order in which they become ready. So while one worker has a segment of one
// step, another can have a segment of another step.
//
// Ownership: borrows the steps, which outlive their run. Its destructor waits for those that run.
// Thread safety: all functions but RunSegment() on one thread, which waits without using the
// processor. Errors: those of the segments; a step ends with the first of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/status.h"

namespace rullama {

class PipelinedStep {
 public:
  PipelinedStep() = default;
  PipelinedStep(const PipelinedStep&) = delete;
  PipelinedStep& operator=(const PipelinedStep&) = delete;
  virtual ~PipelinedStep() = default;

  // At least one.
  [[nodiscard]] virtual size_t segment_count() const = 0;
  [[nodiscard]] virtual size_t worker_of(size_t segment) const = 0;
  // Runs a segment to its end, on the thread of its worker.
  virtual Status RunSegment(size_t segment) = 0;

 private:
  friend class StepPipeline;
  bool running_ = false;
  size_t next_ = 0;  // segment
  Status status_ = OkStatus();
};

class StepPipeline {
 public:
  explicit StepPipeline(size_t workers);
  ~StepPipeline();
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  // Starts a step that does not run, after those that were started before.
  void Start(PipelinedStep& step);
  // Blocks until the step has ended, and returns how.
  Status Wait(PipelinedStep& step);
  // Blocks until no step runs.
  void WaitForAll();

 private:
  void Work(size_t worker);

  std::mutex mutex_;  // guards what follows and the private members of running steps
  std::condition_variable ready_;
  std::condition_variable ended_;
  std::vector<std::vector<PipelinedStep*>> queues_;  // by worker; few, and allocated once
  size_t running_ = 0;                               // steps
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rullama

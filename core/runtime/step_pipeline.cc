#include "core/runtime/step_pipeline.h"

#include <utility>

#include "core/base/alternate_stack.h"

namespace rullama {

StepPipeline::StepPipeline(size_t workers) : queues_(workers) {
  threads_.reserve(workers);
  for (size_t i = 0; i < workers; ++i) threads_.emplace_back([this, i] { Work(i); });
}

StepPipeline::~StepPipeline() {
  WaitForAll();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void StepPipeline::Start(PipelinedStep& step) {
  {
    const std::lock_guard lock(mutex_);
    step.running_ = true;
    step.next_ = 0;
    step.status_ = OkStatus();
    ++running_;
    queues_[step.worker_of(0)].push_back(&step);
  }
  ready_.notify_all();
}

Status StepPipeline::Wait(PipelinedStep& step) {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&step] { return !step.running_; });
  return step.status_;
}

void StepPipeline::WaitForAll() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return running_ == 0; });
}

void StepPipeline::Work(size_t worker) {
  const AlternateStack stack;
  std::vector<PipelinedStep*>& queue = queues_[worker];
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [&] { return stopping_ || !queue.empty(); });
    if (queue.empty()) return;
    PipelinedStep& step = *queue.front();
    queue.erase(queue.begin());
    const size_t segment = step.next_;
    lock.unlock();
    Status status = step.RunSegment(segment);
    lock.lock();
    step.status_ = std::move(status);
    ++step.next_;
    if (step.status_ && step.next_ < step.segment_count()) {
      queues_[step.worker_of(step.next_)].push_back(&step);
      ready_.notify_all();
    } else {
      step.running_ = false;
      --running_;
      ended_.notify_all();
    }
  }
}

}  // namespace rullama

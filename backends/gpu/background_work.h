// Work that a driver does while steps run: on a few threads, in the order in which it was added.
//
// Ownership: the destructor waits for the work that has begun and drops the rest. Thread safety:
// any thread may call Add(). Errors: those of a task are its own; where the system gives no thread,
// Add() runs the task itself.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace rullama::gpu {

class BackgroundWork {
 public:
  // `most`: threads, at least one.
  explicit BackgroundWork(size_t most) : most_(most) {}
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;
  ~BackgroundWork() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // A quarter of the processors: the others run the steps.
  [[nodiscard]] static size_t ThreadsOf(size_t processors) {
    constexpr size_t kShare = 4, kMost = 4;
    return std::clamp<size_t>(processors / kShare, 1, kMost);
  }

  // `task` throws nothing.
  void Add(std::function<void()> task) {
    {
      const std::scoped_lock lock(mutex_);
      if (MayWait()) {
        waiting_.push_back(std::move(task));
        task = nullptr;
      }
    }
    changed_.notify_one();
    if (task) task();
  }

 private:
  // Whether a thread will take one more task. Makes another thread unless one is idle.
  bool MayWait() {
    if (idle_ > waiting_.size() || threads_.size() >= most_) return true;
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
      // The threads that there are do all of the work.
    }
    return !threads_.empty();
  }
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      --idle_;
      if (stop_) return;
      const std::function<void()> task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const size_t most_;
  std::mutex mutex_;  // guards all that follow but the threads' own state
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  size_t idle_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rullama::gpu

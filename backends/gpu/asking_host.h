// Asks the host whether to stop while a driver works. After Ctrl-C the host gives up a plugin that
// stays in a call without asking, but a step or a compilation cannot be stopped half-way, and takes
// long on a slow device. A call of more than a minute counts as hanging: nobody asks any more.
//
// Ownership: the thread is joined by the destructor. Thread safety: scopes are made by one thread
// at a time. Errors: none; if the system gives no thread, nobody asks.
#pragma once

#include <rullama/sdk/backend.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace rullama::gpu {

class AskingHost {
 public:
  static constexpr std::chrono::milliseconds kPeriod{1000};
  static constexpr int kMostQuestions = 60;

  explicit AskingHost(const sdk::Host& host, std::chrono::milliseconds period = kPeriod)
      : host_(host), period_(period) {
    try {
      thread_ = std::thread([this] { Ask(); });
    } catch (const std::system_error&) {
      // A process at its thread limit works on.
    }
  }
  AskingHost(const AskingHost&) = delete;
  AskingHost& operator=(const AskingHost&) = delete;
  ~AskingHost() {
    if (!thread_.joinable()) return;
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    stopped_.notify_one();
    thread_.join();
  }

  // A call of the driver, for its lifetime. Takes no system call. Nests.
  class Scope {
   public:
    explicit Scope(AskingHost& asking) : asking_(asking) {
      if (asking_.calls_.fetch_add(1) == 0) asking_.questions_.store(0);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { asking_.calls_.fetch_sub(1); }

   private:
    AskingHost& asking_;
  };

 private:
  void Ask() {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, period_, [this] { return stop_; })) {
      if (calls_.load() == 0 || questions_.fetch_add(1) >= kMostQuestions) continue;
      static_cast<void>(host_.Cancelled());
    }
  }

  sdk::Host host_;
  const std::chrono::milliseconds period_;
  std::atomic<int> calls_{0};      // in progress
  std::atomic<int> questions_{0};  // of this call
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace rullama::gpu

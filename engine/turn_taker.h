// Lets callers do something one after another.
//
// Thread safety: all member functions from any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "core/base/status.h"

namespace rullama {

class TurnTaker {
 public:
  // A turn, until it is destroyed. The taker outlives it.
  class Turn {
   public:
    explicit Turn(TurnTaker& taker) : taker_(&taker) {}
    Turn(Turn&& other) noexcept : taker_(std::exchange(other.taker_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (taker_ != nullptr) taker_->Leave();
    }

   private:
    TurnTaker* taker_;
  };

  // Waits until nobody has a turn. Error run.cancelled if `stop` is requested before.
  Result<Turn> Take(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!left_.wait(lock, stop, [this] { return !taken_; })) {
      return MakeError(ErrorKind::kRuntime, "run.cancelled", "stopped while others had their turn");
    }
    taken_ = true;
    return Turn(*this);
  }

 private:
  void Leave() {
    {
      const std::lock_guard lock(mutex_);
      taken_ = false;
    }
    left_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable_any left_;
  bool taken_ = false;
};

}  // namespace rullama

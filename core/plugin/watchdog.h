// Reports an operation that takes too long: a driver that hangs while it lists its devices
// otherwise looks like rullama itself hanging. It only reports; nothing is interrupted.
//
// Ownership: the thread is joined by the destructor. Thread safety: construct and destroy on one
// thread; `on_late` runs once at most, on the watchdog's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace rullama {

class Watchdog {
 public:
  // Calls `on_late` if the object still exists after `limit`. If the system gives no thread,
  // nothing is watched.
  Watchdog(std::chrono::milliseconds limit, std::function<void()> on_late);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  void Watch(std::chrono::milliseconds limit, const std::function<void()>& on_late);

  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace rullama

#include "core/plugin/watchdog.h"

#include <system_error>
#include <utility>

namespace rullama {

Watchdog::Watchdog(std::chrono::milliseconds limit, std::function<void()> on_late) {
  try {
    thread_ = std::thread([this, limit, callback = std::move(on_late)] { Watch(limit, callback); });
  } catch (const std::system_error&) {
    // A process at its thread limit works on without being watched.
  }
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  done_changed_.notify_one();
  thread_.join();
}

void Watchdog::Watch(std::chrono::milliseconds limit, const std::function<void()>& on_late) {
  std::unique_lock lock(mutex_);
  if (done_changed_.wait_for(lock, limit, [this] { return done_; })) return;
  lock.unlock();
  on_late();
}

}  // namespace rullama

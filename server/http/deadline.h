// Calls a function unless it is stopped in time.
//
// Thread safety: the thread of its executor only.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

namespace rullama::server {

class Deadline {
 public:
  template <typename Executor>
  explicit Deadline(const Executor& executor) : timer_(executor) {}

  // Calls `expired` after `limit`, unless Stop() or Start() is called before. The Deadline must
  // outlive the wait, so `expired` owns what holds it.
  template <typename Expired>
  void Start(std::chrono::milliseconds limit, Expired expired) {
    timer_.expires_after(limit);
    timer_.async_wait([this, turn = ++turn_, expired = std::move(expired)](
                          const boost::system::error_code& failure) mutable {
      if (!failure && turn == turn_) expired();
    });
  }
  void Stop() {
    ++turn_;
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;
  // Tells waits apart: a timer that has expired may be stopped before its handler runs, and the
  // handler is then called as if it had not been.
  uint64_t turn_ = 0;
};

}  // namespace rullama::server

// The clocks of durations. Thread safety: pure.
#pragma once

#include <time.h>

#include <chrono>

namespace rullama {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The processor time of the calling thread so far.
inline std::chrono::nanoseconds ThreadTime() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace rullama

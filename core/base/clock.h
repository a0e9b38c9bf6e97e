// The clock of durations. Thread safety: pure.
#pragma once

#include <chrono>

namespace rullama {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace rullama

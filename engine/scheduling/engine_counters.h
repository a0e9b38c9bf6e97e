// The counters of a scheduler: its thread changes them, any thread may read them.
#pragma once

#include <mutex>

#include "engine/api/stats.h"
#include "engine/job.h"

namespace rullama {

inline double SecondsBetween(EngineClock::time_point from, EngineClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Thread safety: all member functions from any thread.
class EngineCounters {
 public:
  // Calls `change(EngineStats&)`, which must not call this object.
  template <typename Change>
  void Update(const Change& change) {
    const std::lock_guard lock(mutex_);
    change(stats_);
  }
  // Counts a step that began at `begin` and has ended.
  void CountStep(StepStats EngineStats::*kind, size_t rows, EngineClock::time_point begin) {
    const double seconds = SecondsBetween(begin, EngineClock::now());
    Update([&](EngineStats& stats) {
      (stats.*kind).seconds.Observe(seconds);
      (stats.*kind).rows.Observe(static_cast<double>(rows));
    });
  }
  [[nodiscard]] EngineStats Read() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  mutable std::mutex mutex_;
  EngineStats stats_;
};

}  // namespace rullama

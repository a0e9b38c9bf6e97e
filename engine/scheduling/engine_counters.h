// The counters of a scheduler: its thread changes them, any thread may read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

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

  // Before the first of the following.
  void SetSlots(int64_t slots) {
    const std::lock_guard lock(mutex_);
    stats_.slots = slots;
    slots_.resize(static_cast<size_t>(slots));
  }
  // Calls `change(SlotActivity&)`, which must not call this object.
  template <typename Change>
  void UpdateSlot(int32_t slot, const Change& change) {
    const std::lock_guard lock(mutex_);
    change(slots_[static_cast<size_t>(slot)]);
  }
  [[nodiscard]] std::vector<SlotActivity> ReadSlots() const {
    const std::lock_guard lock(mutex_);
    return slots_;
  }

 private:
  mutable std::mutex mutex_;
  EngineStats stats_;
  std::vector<SlotActivity> slots_;
};

}  // namespace rullama

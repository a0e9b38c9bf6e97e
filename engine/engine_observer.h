// The times of requests, for traces. Those of steps are in core/runtime/step_observer.h.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/runtime/step_observer.h"

namespace rullama {

// A request that had a slot, from its submission until it left the slot.
struct RequestSpan {
  using Clock = std::chrono::steady_clock;

  uint64_t number = 0;  // of the requests of the engine, from 1, in the order of getting a slot
  int32_t slot = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of the prompt, not read again
  int64_t drawn_tokens = 0;
  Clock::time_point submitted = {};
  Clock::time_point started = {};      // when it got the slot
  Clock::time_point first_token = {};  // `end` if none was drawn
  Clock::time_point end = {};
};

// Called on the threads of engines, one call at a time for each of them. Must not call an engine.
class EngineObserver : public StepObserver {
 public:
  virtual void OnRequest(const RequestSpan& span) = 0;
};

}  // namespace rullama

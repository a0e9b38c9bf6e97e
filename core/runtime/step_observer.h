// The times of what a session does, for traces. A session with an observer waits for each segment
// to finish before it starts the next one, so that a span lasts as long as the work; segments of
// different devices then never overlap. A session without an observer reads no clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/ir/graph.h"
#include "core/plugin/device.h"
#include "core/runtime/step_rows.h"

namespace rullama {

struct StepSpan {
  enum class Kind : uint8_t {
    kStep,     // one Session::Run, around the others; name: the graph
    kCompile,  // a plan is built and compiled, and its weights are loaded; name: the graph
    kInputs,   // the inputs of a segment are written; no name
    kCopy,     // a value goes from one device to another, through the host; name: the value
    kSegment,  // a device runs a segment; name: the graph
    kRead,     // the host reads an output, and waits for it; name: the output
  };
  using Clock = std::chrono::steady_clock;

  Kind kind = Kind::kStep;
  std::string_view name;              // valid during the call only
  size_t device = 0;                  // of a segment: index into SessionOptions::devices
  std::string_view device_name = {};  // of a segment: its backend; valid during the call only
  int64_t rows = 0;                   // of steps, plans and segments: T
  int64_t wanted = 0;                 // of steps, plans and segments: R
  uint64_t bytes = 0;                 // of copies and reads
  size_t ops = 0;                     // of segments
  Clock::time_point begin = {};
  Clock::time_point end = {};
};

// A segment that was run. The references are valid during the call; the graph lives as long as the
// session, at the same address.
struct SegmentRun {
  const Graph& graph;
  const StepRows& rows;          // of the step; its wanted rows if the segment has no others
  size_t device = 0;             // index into SessionOptions::devices
  std::string_view device_name;  // its backend
};

// Called on the thread that uses the session. Must not call the session.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Spans arrive in the order in which they end. What fails has no span.
  virtual void OnSpan(const StepSpan& span) = 0;
  // Whether plans record when their ops run; asked when one is compiled. Plugins that cannot record
  // tell nothing.
  [[nodiscard]] virtual bool wants_ops() const { return false; }
  // A record of a segment, by worker in the order of time, after the span of the segment.
  virtual void OnOp(const SegmentRun& /*run*/, const OpTime& /*time*/) {}
};

// Measures one span from its construction to End(). A null observer makes both do nothing.
class SpanTimer {
 public:
  explicit SpanTimer(StepObserver* observer) : observer_(observer) {
    if (observer_ != nullptr) begin_ = StepSpan::Clock::now();
  }
  // `begin` and `end` of the span are filled in.
  void End(StepSpan span) const {
    if (observer_ == nullptr) return;
    span.begin = begin_;
    span.end = StepSpan::Clock::now();
    observer_->OnSpan(span);
  }

 private:
  StepObserver* observer_;
  StepSpan::Clock::time_point begin_;
};

}  // namespace rullama

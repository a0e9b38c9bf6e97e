// Which ops a backend runs as one, as the records of a step tell. One thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "cli/reports/graph_drawing.h"
#include "core/base/status.h"
#include "core/runtime/step_observer.h"

namespace rullama::cli {

class DispatchRecorder final : public StepObserver {
 public:
  void OnSpan(const StepSpan& /*span*/) override {}
  [[nodiscard]] bool wants_ops() const override { return true; }
  void OnOp(const SegmentRun& run, const OpTime& time) override;

  // The segments that ran, in their order; their graphs live as long as the session. Error
  // graph.not_fused if no two ops ran as one.
  [[nodiscard]] Result<std::vector<DrawnPart>> Parts() const;

 private:
  static constexpr size_t kUnseen = static_cast<size_t>(-1);
  std::vector<DrawnPart> parts_;
  std::map<std::vector<uint32_t>, size_t> dispatches_;  // of the last part
  std::string backend_;                                 // of the last part
  size_t next_ = 0;
};

}  // namespace rullama::cli

// The part of Session that runs steps in lanes.
#include <algorithm>

#include "core/runtime/session.h"

namespace rullama {

// A device that is named twice has one worker.
size_t Session::Lane::worker_of(size_t segment) const {
  const auto at = std::ranges::find(devices_, plan->device_of(segment));
  return static_cast<size_t>(at - devices_.begin());
}

bool Session::IsInFlight(int32_t slot) const {
  return std::ranges::any_of(lanes_, [slot](const Lane& lane) {
    return lane.started &&
           std::ranges::find(lane.step.rows.slot, slot) != lane.step.rows.slot.end();
  });
}

Status Session::CheckLane(size_t lane, bool started) const {
  if (lane >= lanes_.size()) {
    return MakeError(ErrorKind::kRuntime, "session.internal", "lane {} of {}", lane, lanes_.size());
  }
  if (lanes_[lane].started == started) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "session.internal", "lane {} has {} step in flight", lane,
                   started ? "no" : "a");
}

Status Session::Start(size_t lane, const StepRows& rows) {
  RL_RETURN_IF_ERROR(CheckLane(lane, /*started=*/false));
  RL_ASSIGN_OR_RETURN(const BoundPlan* plan, BeginStep(rows, /*alone=*/false));
  Lane& at = lanes_[lane];
  at.step.rows = rows;
  at.step.past = past_;
  RL_RETURN_IF_ERROR(plan->Prepare(at.step));
  at.plan = plan;
  last_plan_ = nullptr;  // its outputs are overwritten
  if (!pipeline_) pipeline_ = std::make_unique<StepPipeline>(resources_.devices().size());
  at.started = true;
  pipeline_->Start(at);
  return OkStatus();
}

Status Session::Finish(size_t lane) {
  RL_RETURN_IF_ERROR(CheckLane(lane, /*started=*/true));
  Lane& at = lanes_[lane];
  Status status = pipeline_->Wait(at);
  at.started = false;
  if (!status) {
    at.plan = nullptr;
    return status;
  }
  if (graphs_[at.step.rows.graph.index].extends_past) {
    for (const int32_t slot : at.step.rows.slot) ++past_[static_cast<size_t>(slot)];
  }
  ++steps_;
  return OkStatus();
}

void Session::WaitForSteps() {
  if (pipeline_) pipeline_->WaitForAll();
}

}  // namespace rullama

// A compiled graph: kernels with their arguments in place, queued for each step.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/device_objects.h"
#include "backends/gpu/dispatch_times.h"
#include "backends/gpu/kernel_cache.h"
#include "backends/gpu/plan_builder.h"
#include "backends/opencl/driver.h"

namespace rullama::opencl {

class OpenClPlan final : public sdk::Plan, public gpu::Noted {
 public:
  OpenClPlan(OpenClDriver& driver, gpu::BlockMemory& blocks, gpu::KernelCache& kernels,
             const sdk::GraphView& graph, const gpu::Tuning& tuning);
  ~OpenClPlan() override;
  void Execute(int64_t t, int64_t r) override;
  [[nodiscard]] rl_plan_stats Stats() const override { return stats_; }
  [[nodiscard]] std::span<const rl_op_time> Times() override;

  void CheckFailure() override;

 private:
  struct Launch {
    Owned<cl_kernel> kernel;
    std::array<size_t, 3> global, local;
    std::string name;        // with the constants, for times
    uint32_t op = RL_NO_OP;  // Dispatch::op_index
  };
  // Launches for steps of one number of rows, or of any.
  struct Recording {
    int64_t t = 0;  // 0: any; kernels read the numbers
    int64_t r = 0;
    std::vector<Launch> launches;
  };

  void Record(const std::vector<gpu::Dispatch>& dispatches, Recording& recording);
  [[nodiscard]] Launch LaunchOf(const gpu::Dispatch& dispatch) const;
  void Enqueue(const Launch& launch);
  // Reads the events of what was executed: for the log in the end, and of the last execution for
  // the host.
  void ReadEvents();
  void ReportTimes() const;

  OpenClDriver& driver_;
  gpu::KernelCache& kernels_;
  gpu::Allocation step_;  // T, R, first failed op
  gpu::PlanMemory memory_;
  bool profile_;  // the times of launches go to the log in the end
  // Null unless the host wants the times. Records point into ops_of_node_.
  std::unique_ptr<gpu::DispatchTimes> op_times_;
  std::map<uint32_t, std::vector<uint32_t>> ops_of_node_;
  uint64_t submitted_ = 0;  // when the last execution was handed to the device
  std::vector<Recording> recordings_;
  std::vector<std::pair<const Launch*, Owned<cl_event>>> events_;  // of steps that are timed
  size_t latest_event_ = 0;                                     // the first of the last execution
  std::map<std::string, std::pair<uint64_t, uint64_t>> times_;  // launches, nanoseconds
  int64_t t_ = -1, r_ = -1;                                     // in step_
  uint32_t failed_ = 0;                                         // read back after each step
  bool running_ = false;  // whether a failure has not been looked for yet
  rl_plan_stats stats_{};
};

}  // namespace rullama::opencl

// A compiled graph: commands recorded once over a driver, and submitted for each step.
//
// Thread safety: none; used under the host's lock on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu/deferred_errors.h"
#include "backends/gpu/device_objects.h"
#include "backends/gpu/dispatch_times.h"
#include "backends/gpu/driver.h"
#include "backends/gpu/kernel_cache.h"
#include "backends/gpu/kernel_times.h"
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// What a graph is lowered for, and what makes its steps one dispatch, if anything does.
struct Lowering {
  Target target;
  StepJoiner* joiner = nullptr;
};
// `device`: what graphs are lowered for whose steps are many dispatches. `profile`: each is timed.
Lowering LoweringOf(Driver& driver, const Target& device, bool profile,
                    const sdk::GraphView& graph);

class GpuPlan final : public sdk::Plan, public Noted {
 public:
  // What they refer to outlives the plan. `device` and `profile`: as LoweringOf() takes them.
  GpuPlan(Driver& driver, BlockMemory& blocks, KernelCache& kernels, const Target& device,
          bool profile, const sdk::GraphView& graph);
  ~GpuPlan() override;
  void Execute(int64_t t, int64_t r) override;
  [[nodiscard]] rl_plan_stats Stats() const override;
  [[nodiscard]] std::span<const rl_op_time> Times() override;

  void CheckFailure() override;

 private:
  // Commands for steps of one number of rows, or of any.
  struct Variant {
    int64_t t = 0;  // 0: any; kernels read the numbers
    int64_t r = 0;
    std::unique_ptr<Commands> commands;
    // The same as one dispatch, with the same results; null if the step has no such form.
    std::unique_ptr<Commands> joined;
    uint64_t dispatches = 0;  // of `commands`
    uint64_t levels = 0;      // 0: unknown
    bool executed = false;
    bool running = false;            // since the last wait
    std::vector<uint32_t> ops;       // op_index of each dispatch, if they are timed
    std::vector<std::string> names;  // likewise
  };

  // What recording needs besides the dispatches.
  struct Recorder {
    const Lowering& lowering;
    BlockMemory& blocks;
    const KernelCache& kernels;
    std::span<const PipelineKey> kinds;
    const PlanSteps& steps;
  };
  void Record(const Recorder& recorder, std::vector<Dispatch> dispatches, Variant& variant);
  void RecordInOrder(const Recorder& recorder, const std::vector<Dispatch>& dispatches,
                     std::span<const uint32_t> levels, Variant& variant);
  Variant& VariantFor(int64_t t, int64_t r);
  // Whether a step of it is one dispatch from now on.
  [[nodiscard]] bool RunsJoined(const Variant& variant) const;
  // The error of a step whose failed op is kStuckStep, which was one dispatch or many.
  [[nodiscard]] sdk::Error StuckError(bool joined) const;
  void ReadTimes();
  void ReportTimes() const;

  Driver& driver_;
  Allocation step_;  // StepWords
  PlanMemory memory_;
  bool profile_;                     // the times of dispatches go to the log in the end
  StepJoiner* joiner_ = nullptr;     // null: steps are many dispatches
  JoinedKernels* joined_ = nullptr;  // of all variants with `joined`
  // Null unless the host wants the times. Records point into ops_of_node_.
  std::unique_ptr<DispatchTimes> op_times_;
  std::map<uint32_t, std::vector<uint32_t>> ops_of_node_;
  KernelTimes kernel_times_;
  std::vector<DispatchTime> read_times_;  // memory of ReadTimes()
  uint64_t submitted_ = 0;                // when the last execution was handed to the device
  std::vector<Variant> variants_;
  const Variant* latest_ = nullptr;  // executed last
  int64_t t_ = -1, r_ = -1;          // in step_
  uint32_t failed_ = 0;              // read back after each step
  bool running_ = false;             // whether a failure has not been looked for yet
  bool running_joined_ = false;      // and some of those steps were one dispatch
  // Whether a step in one dispatch was kStuckStep: its counters may be anywhere, so none runs
  // again.
  bool stuck_ = false;
  rl_plan_stats stats_{};
};

}  // namespace rullama::gpu

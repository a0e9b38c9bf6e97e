#include "backends/gpu/plan.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "backends/gpu/kernel_source.h"
#include "backends/gpu/schedule.h"
#include "backends/gpu/work_split.h"

namespace rullama::gpu {
namespace {

// "matvec 128 12 8 1 groups 64 1 1"
std::string TextOf(const Dispatch& dispatch) {
  std::string text(NameOf(dispatch.pipeline.shader));
  for (const uint32_t constant : dispatch.pipeline.constants) {
    text += " " + std::to_string(constant);
  }
  text += " groups";
  for (const uint32_t count : dispatch.groups) text += " " + std::to_string(count);
  return text;
}

}  // namespace

Lowering LoweringOf(Driver& driver, const Target& device, bool profile,
                    const sdk::GraphView& graph) {
  // Parts of one dispatch cannot be timed.
  StepJoiner* joiner = profile ? nullptr : driver.joiner();
  if (joiner == nullptr) return {device};
  const std::optional<Target> joined = joiner->TargetFor(device, graph);
  return joined ? Lowering{*joined, joiner} : Lowering{device};
}

GpuPlan::GpuPlan(Driver& driver, BlockMemory& blocks, KernelCache& kernels, const Target& device,
                 bool profile, const sdk::GraphView& graph)
    : driver_(driver),
      step_(blocks.Allocate(sizeof(StepWords), Residence::kShared)),
      memory_(driver, blocks),
      profile_(profile && device.can.tells_times) {
  const StepWords empty{};
  driver_.Write(step_, 0, std::as_bytes(std::span(&empty, 1)));
  const Lowering lowering = LoweringOf(driver, device, profile, graph);
  joiner_ = lowering.joiner;
  LoweredGraph lowered = Lower(memory_, graph, lowering.target, step_.address());
  if (graph.record_times() && device.can.tells_times) {
    op_times_ = std::make_unique<DispatchTimes>(lowered.dispatches.size());
    ops_of_node_ = std::move(lowered.ops_of_node);
    read_times_.reserve(lowered.dispatches.size());
  }
  if (joiner_ != nullptr) joiner_->MergeKinds(lowered.dispatches);
  const std::vector<PipelineKey> kinds = KindsOf(lowered.dispatches);
  stats_.compilations = std::max<uint64_t>(1, kernels.Prepare(kinds));
  // Parts of one dispatch cannot be timed. Kernels stay as they are, and with them the results.
  if (joiner_ != nullptr && !graph.record_times()) joined_ = kernels.Join(*joiner_, kinds);
  stats_.allocations = memory_.allocations() + 1;
  stats_.workspace_bytes = lowered.workspace_bytes;
  const PlanSteps steps = StepsOf(graph, lowering.target);
  const Recorder recorder{lowering, blocks, kernels, kinds, steps};
  if (!steps.HaveOneRow()) {
    Record(recorder, std::move(lowered.dispatches), variants_.emplace_back());
    return;
  }
  for (int64_t r = 0; r <= graph.max_r(); ++r) {
    Variant& variant = variants_.emplace_back();
    variant.t = 1;
    variant.r = r;
    Record(recorder, AtExtents(lowered.dispatches, 1, r), variant);
  }
}

rl_plan_stats GpuPlan::Stats() const {
  rl_plan_stats stats = stats_;
  stats.pending = joined_ != nullptr && joined_->state() == JoinState::kWaiting ? 1 : 0;
  return stats;
}

GpuPlan::~GpuPlan() {
  driver_.Forget(*this);
  if (!kernel_times_.empty()) ReportTimes();
}

void GpuPlan::Record(const Recorder& recorder, std::vector<Dispatch> dispatches, Variant& variant) {
  ++stats_.recordings;
  if (!recorder.lowering.target.can.overlaps_dispatches)
    return RecordInOrder(recorder, dispatches, {}, variant);
  const std::vector<uint32_t> levels = LevelsOf(dispatches);
  const PlanSteps& steps = recorder.steps;
  if (steps.UseRowKernels()) {
    Balance(dispatches, levels, recorder.lowering.target, steps.kind == StepKind::kRowByRow);
  }
  if (joined_ != nullptr && steps.UseRowKernels()) {
    JoinedCommands joined = joiner_->Record(
        {*joined_, recorder.kinds, dispatches, levels, step_.address()}, recorder.blocks);
    stats_.allocations += joined.allocations;
    stats_.workspace_bytes += joined.bytes;
    variant.joined = std::move(joined.commands);
  }
  std::vector<Dispatch> ordered;
  std::vector<uint32_t> ordered_levels;
  ordered.reserve(dispatches.size());
  ordered_levels.reserve(dispatches.size());
  for (const uint32_t i : OrderOf(dispatches, levels)) {
    ordered.push_back(std::move(dispatches[i]));
    ordered_levels.push_back(levels[i]);
  }
  RecordInOrder(recorder, ordered, ordered_levels, variant);
}

void GpuPlan::RecordInOrder(const Recorder& recorder, const std::vector<Dispatch>& dispatches,
                            std::span<const uint32_t> levels, Variant& variant) {
  const bool timed = profile_ || op_times_;
  variant.commands = driver_.Record(
      {dispatches, levels, recorder.kernels, timed, recorder.steps.LeaveTransientsUnaliased()});
  variant.dispatches = dispatches.size();
  variant.levels = levels.empty() ? 0 : levels.back() + 1;
  if (!timed) return;
  for (const Dispatch& dispatch : dispatches) {
    variant.ops.push_back(dispatch.op_index);
    variant.names.push_back(TextOf(dispatch));
  }
}

GpuPlan::Variant& GpuPlan::VariantFor(int64_t t, int64_t r) {
  const auto found = std::ranges::find_if(variants_, [&](const Variant& candidate) {
    return candidate.t == 0 || (candidate.t == t && candidate.r == r);
  });
  if (found != variants_.end()) return *found;
  throw sdk::Error(RL_INVALID_ARGUMENT, "a step of " + std::to_string(t) + " rows, " +
                                            std::to_string(r) +
                                            " wanted, is outside the plan's limits");
}

bool GpuPlan::RunsJoined(const Variant& variant) const {
  return variant.joined != nullptr && joined_->state() == JoinState::kReady;
}

void GpuPlan::Execute(int64_t t, int64_t r) {
  if (stuck_) throw StuckError(/*joined=*/true);
  if (driver_.host().Cancelled()) throw sdk::Error(RL_CANCELLED, "stopped before the step");
  Variant& variant = VariantFor(t, r);
  if (t != t_ || r != r_) {
    const uint32_t extents[2] = {static_cast<uint32_t>(t), static_cast<uint32_t>(r)};
    driver_.Write(step_, 0, std::as_bytes(std::span(extents)));
    t_ = t;
    r_ = r;
  }
  if (op_times_) {
    submitted_ = sdk::NowNanoseconds();
    op_times_->Start(submitted_);
  }
  const bool joined = RunsJoined(variant);
  running_joined_ = running_joined_ || joined;
  driver_.Submit(
      joined ? *variant.joined : *variant.commands,
      {&step_, offsetof(StepWords, failed_op), std::as_writable_bytes(std::span(&failed_, 1))});
  driver_.Remember(*this);
  latest_ = &variant;
  variant.executed = variant.running = running_ = true;
  ++stats_.executions;
  stats_.dispatches += joined ? 1 : variant.dispatches;
}

sdk::Error GpuPlan::StuckError(bool joined) const {
  if (joined) return joiner_->StuckError();
  return sdk::Error(RL_DEVICE_LOST,
                    "workgroups of a dispatch waited in vain for those before them");
}

void GpuPlan::CheckFailure() {
  if (!running_) return;
  running_ = false;
  const bool joined = std::exchange(running_joined_, false);
  ReadTimes();
  if (failed_ == 0) return;
  if (op_times_) op_times_->Start(submitted_);  // a failed execution has no times
  const uint32_t failed = std::exchange(failed_, 0);
  driver_.Write(step_, offsetof(StepWords, failed_op), std::as_bytes(std::span(&failed_, 1)));
  if (failed == kStuckStep) {
    stuck_ = joined;
    throw StuckError(joined);
  }
  throw sdk::Error(RL_INVALID_ARGUMENT, "an index is out of range", failed - 1);
}

// ---- times --------------------------------------------------------------------------------------

std::span<const rl_op_time> GpuPlan::Times() {
  return op_times_ ? op_times_->records() : std::span<const rl_op_time>();
}

// Reads the times of all executions since the last wait, for the log at the end, and those of the
// last one for the host.
void GpuPlan::ReadTimes() {
  for (Variant& variant : variants_) {
    const size_t count = variant.ops.size();
    if (!std::exchange(variant.running, false) || count == 0) continue;
    read_times_.clear();
    driver_.TimesOf(*variant.commands, read_times_);
    const size_t last = read_times_.size() - std::min(count, read_times_.size());
    for (size_t i = 0; i < read_times_.size(); ++i) {
      const auto& [begin, end] = read_times_[i];
      if (profile_) kernel_times_.Add(variant.names[i % count], end - begin);
      if (op_times_ && &variant == latest_ && i >= last) {
        op_times_->Add(ops_of_node_.at(variant.ops[i % count]), begin, end);
      }
    }
  }
}

void GpuPlan::ReportTimes() const {
  const sdk::Host& host = driver_.host();
  for (const Variant& variant : variants_) {
    if (!variant.executed || variant.levels == 0) continue;
    host.Log(RL_LOG_WARNING, std::to_string(variant.dispatches) + " dispatches on " +
                                 std::to_string(variant.levels) + " levels");
  }
  for (const std::string& line : kernel_times_.Report(stats_.executions)) {
    host.Log(RL_LOG_WARNING, line);
  }
}

}  // namespace rullama::gpu

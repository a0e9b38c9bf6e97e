#include "backends/opencl/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "backends/gpu/kernel_source.h"
#include "backends/gpu/schedule.h"

namespace rullama::opencl {
namespace {

using gpu::Dispatch;
using gpu::PipelineKey;

struct StepWords {
  uint32_t t, r, failed_op, reserved;
};

// The offset that stands for a null pointer.
constexpr uint64_t kNullOffset = UINT64_MAX;
// The size of the push constants is a multiple of this, as that of a struct with addresses is.
constexpr uint64_t kPushAlignment = 8;

// "matvec 128 12 8 1 groups 64 1 1"
std::string NameOf(const Dispatch& dispatch) {
  std::string name(gpu::NameOf(dispatch.pipeline.shader));
  for (const uint32_t constant : dispatch.pipeline.constants) {
    name += " " + std::to_string(constant);
  }
  name += " groups";
  for (const uint32_t count : dispatch.groups) name += " " + std::to_string(count);
  return name;
}

}  // namespace

OpenClPlan::OpenClPlan(OpenClDriver& driver, gpu::BlockMemory& blocks, gpu::KernelCache& kernels,
                       const sdk::GraphView& graph, const gpu::Tuning& tuning)
    : driver_(driver),
      kernels_(kernels),
      step_(blocks.Allocate(sizeof(StepWords))),
      memory_(driver, blocks),
      profile_(tuning.profile) {
  driver_.FillZero(step_);
  gpu::LoweredGraph lowered = gpu::Lower(memory_, graph, tuning, step_.address());
  if (graph.record_times()) {
    driver_.RecordTimes();
    op_times_ = std::make_unique<gpu::DispatchTimes>(lowered.dispatches.size());
    ops_of_node_ = std::move(lowered.ops_of_node);
  }
  const std::vector<PipelineKey> kinds = gpu::KindsOf(lowered.dispatches);
  stats_.compilations = std::max<uint64_t>(1, kernels_.Prepare(kinds));
  stats_.allocations = memory_.allocations() + 1;
  stats_.workspace_bytes = lowered.workspace_bytes;
  if (!gpu::HasOneRow(graph, tuning)) {
    Record(lowered.dispatches, recordings_.emplace_back());
    return;
  }
  for (int64_t r = 0; r <= graph.max_r(); ++r) {
    Recording& recording = recordings_.emplace_back();
    recording.t = 1;
    recording.r = r;
    Record(gpu::AtExtents(lowered.dispatches, 1, r), recording);
  }
}

OpenClPlan::~OpenClPlan() {
  driver_.Forget(*this);
  if (!times_.empty()) ReportTimes();
}

void OpenClPlan::Record(const std::vector<Dispatch>& dispatches, Recording& recording) {
  recording.launches.reserve(dispatches.size());
  for (const Dispatch& dispatch : dispatches) recording.launches.push_back(LaunchOf(dispatch));
  ++stats_.recordings;
}

// Arguments: a buffer for each address, in their order, whose place in the push constants takes the
// offset; the push constants; of some kernels, constants.
OpenClPlan::Launch OpenClPlan::LaunchOf(const Dispatch& dispatch) const {
  Launch launch;
  launch.kernel = driver_.programs().NewKernel(kernels_.Get(dispatch.pipeline), dispatch.pipeline);
  launch.name = NameOf(dispatch);
  launch.op = dispatch.op_index;
  cl_uint argument = 0;
  const auto set = [&](size_t size, const void* value) {
    Check(driver_.api().SetKernelArg(launch.kernel.get(), argument, size, value),
          "clSetKernelArg " + std::to_string(argument) + " of " + launch.name);
    ++argument;
  };
  auto push = dispatch.push;
  for (const uint32_t at : dispatch.pointers) {
    gpu::DeviceAddress address = 0;
    std::memcpy(&address, push.data() + at, sizeof(address));
    Place place{nullptr, kNullOffset};
    if (address != 0) place = driver_.PlaceOf(address);
    std::memcpy(push.data() + at, &place.offset, sizeof(place.offset));
    set(sizeof(cl_mem), static_cast<const void*>(&place.buffer));
  }
  set(gpu::RoundUp(dispatch.push_bytes, kPushAlignment), push.data());
  const std::vector<uint32_t> constants = driver_.programs().ArgumentsOf(dispatch.pipeline);
  if (!constants.empty()) set(constants.size() * sizeof(uint32_t), constants.data());
  const uint32_t threads = dispatch.pipeline.constants.front();
  launch.local = {threads, 1, 1};
  for (size_t axis = 0; axis < 3; ++axis) {
    launch.global[axis] = dispatch.groups[axis] * launch.local[axis];
  }
  return launch;
}

void OpenClPlan::Enqueue(const Launch& launch) {
  const bool timed = profile_ || op_times_;
  cl_event event = nullptr;
  driver_.CheckQueue(driver_.api().EnqueueNDRangeKernel(
                         driver_.queue(), launch.kernel.get(), 3, nullptr, launch.global.data(),
                         launch.local.data(), 0, nullptr, timed ? &event : nullptr),
                     "clEnqueueNDRangeKernel");
  if (timed) events_.emplace_back(&launch, Own(event, driver_.api().ReleaseEvent));
}

void OpenClPlan::Execute(int64_t t, int64_t r) {
  if (driver_.host().Cancelled()) throw sdk::Error(RL_CANCELLED, "stopped before the step");
  const auto recording = std::ranges::find_if(recordings_, [&](const Recording& candidate) {
    return candidate.t == 0 || (candidate.t == t && candidate.r == r);
  });
  if (recording == recordings_.end()) {
    throw sdk::Error(RL_INVALID_ARGUMENT, "a step of " + std::to_string(t) + " rows, " +
                                              std::to_string(r) +
                                              " wanted, is outside the plan's limits");
  }
  if (t != t_ || r != r_) {
    const uint32_t extents[2] = {static_cast<uint32_t>(t), static_cast<uint32_t>(r)};
    driver_.Write(step_, 0, std::as_bytes(std::span(extents)));
    t_ = t;
    r_ = r;
  }
  if (op_times_) {
    latest_event_ = events_.size();
    submitted_ = sdk::NowNanoseconds();
    op_times_->Start(submitted_);
  }
  for (const Launch& launch : recording->launches) Enqueue(launch);
  driver_.ReadLater(step_, offsetof(StepWords, failed_op),
                    std::as_writable_bytes(std::span(&failed_, 1)));
  driver_.CheckQueue(driver_.api().Flush(driver_.queue()), "clFlush");
  driver_.Remember(*this);
  running_ = true;
  ++stats_.executions;
  stats_.dispatches += recording->launches.size();
}

void OpenClPlan::CheckFailure() {
  if (!running_) return;
  running_ = false;
  ReadEvents();
  if (failed_ == 0) return;
  if (op_times_) op_times_->Start(submitted_);  // a failed execution has no times
  const uint32_t failed = std::exchange(failed_, 0);
  driver_.Write(step_, offsetof(StepWords, failed_op), std::as_bytes(std::span(&failed_, 1)));
  throw sdk::Error(RL_INVALID_ARGUMENT, "an index is out of range", failed - 1);
}

// ---- times --------------------------------------------------------------------------------------

void OpenClPlan::ReadEvents() {
  const auto time_of = [this](const Owned<cl_event>& event, cl_profiling_info what) {
    cl_ulong time = 0;
    Check(driver_.api().GetEventProfilingInfo(event.get(), what, sizeof(time), &time, nullptr),
          "clGetEventProfilingInfo");
    return uint64_t{time};
  };
  for (size_t i = 0; i < events_.size(); ++i) {
    const auto& [launch, event] = events_[i];
    const uint64_t begin = time_of(event, CL_PROFILING_COMMAND_START);
    const uint64_t end = time_of(event, CL_PROFILING_COMMAND_END);
    if (op_times_ && i >= latest_event_) op_times_->Add(ops_of_node_.at(launch->op), begin, end);
    if (!profile_) continue;
    auto& [launches, nanoseconds] = times_[launch->name];
    ++launches;
    nanoseconds += end - begin;
  }
  events_.clear();
  latest_event_ = 0;
}

std::span<const rl_op_time> OpenClPlan::Times() {
  return op_times_ ? op_times_->records() : std::span<const rl_op_time>();
}

void OpenClPlan::ReportTimes() const {
  std::vector<std::pair<uint64_t, std::string>> lines;
  uint64_t all = 0;
  for (const auto& [name, time] : times_) {
    const auto& [launches, nanoseconds] = time;
    all += nanoseconds;
    lines.emplace_back(nanoseconds, std::to_string(nanoseconds / 1000) + " us in " +
                                        std::to_string(launches) + " launches of " + name);
  }
  std::sort(lines.rbegin(), lines.rend());
  driver_.host().Log(RL_LOG_WARNING, std::to_string(stats_.executions) + " steps took " +
                                         std::to_string(all / 1000) + " us of the device's time");
  for (const auto& [time, line] : lines) driver_.host().Log(RL_LOG_WARNING, line);
}

}  // namespace rullama::opencl

#include "backends/vulkan/plan.h"

#include <rullama/sdk/shape.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "backends/gpu/kernel_source.h"
#include "backends/gpu/matrix_product.h"
#include "backends/gpu/schedule.h"
#include "backends/gpu/work_split.h"
#include "backends/vulkan/persistent.h"
#include "backends/vulkan/profile.h"

namespace rullama::vulkan {
namespace {

// The maximum number of dispatches of one submission of a step of many rows: drivers end work that
// keeps a device busy for seconds (amdgpu after ten, Windows after two). 64 are two or three
// layers.
constexpr size_t kMaxDispatches = 64;

struct StepWords {
  uint32_t t, r, failed_op, reserved;
};
// Stands for failed_op when workgroups of a persistent step waited for others in vain.
constexpr uint32_t kStuck = 0xFFFFFFFF;

constexpr VkAccessFlags kShaderAccess = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;

void Barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags written,
             VkPipelineStageFlags to, VkAccessFlags used) {
  const VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, written, used};
  vkCmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

// Whether steps of a plan are worth one dispatch: those of one row and those that run row by row.
// With experts whose products do not go by bytes they are not: these want more workgroups than stay
// on a device (557 tokens a second against 475 on an H200).
bool IsWorthOneDispatch(const Tuning& tuning, const sdk::GraphView& graph) {
  if (!gpu::HasOneRow(graph, tuning) && !gpu::RunsRowByRow(graph, tuning)) return false;
  for (uint32_t i = 0; i < graph.op_count(); ++i) {
    const rl_op& op = graph.op(i);
    if (op.kind == RL_OP_grouped_matmul) return false;
    if (op.kind == RL_OP_moe_ffn && !gpu::ExpertsFitInt8Gemv(tuning, graph, op)) return false;
  }
  return true;
}

// llvmpipe runs every side of a branch, masked, for every entry of a list, and follows pointers
// there that are none: graphs of whole models crash it. In joined kernels of attention, though not
// in one alone, subgroups that skip a loop get past the barrier behind it.
bool SoftwareJoins(std::span<const PipelineKey> kinds) {
  constexpr size_t kMaxKinds = 4;
  constexpr std::array kSkipLoops = {Shader::kAttentionRow, Shader::kAttentionStats,
                                     Shader::kAttentionGradQ, Shader::kAttentionGradKv};
  return kinds.size() <= kMaxKinds && std::ranges::none_of(kinds, [&](const PipelineKey& kind) {
           return std::ranges::find(kSkipLoops, kind.shader) != kSkipLoops.end();
         });
}

bool MayJoin(const Tuning& tuning, std::span<const PipelineKey> kinds) {
  return tuning.persistent_groups > 0 && !kinds.empty() &&
         (!tuning.software || SoftwareJoins(kinds));
}

// Tasks share their memory anyway: those that differ only in its capacity become one.
void AgreeOnCapacities(std::vector<Dispatch>& dispatches) {
  const size_t capacity = gpu::FindCapacity(Shader::kMatVecDot);
  std::map<PipelineKey, uint32_t> largest;  // by the key with a capacity of 0
  for (const Dispatch& dispatch : dispatches) {
    if (dispatch.pipeline.shader != Shader::kMatVecDot) continue;
    PipelineKey key = dispatch.pipeline;
    const uint32_t own = std::exchange(key.constants[capacity], 0);
    uint32_t& most = largest[key];
    most = std::max(most, own);
  }
  for (Dispatch& dispatch : dispatches) {
    if (dispatch.pipeline.shader != Shader::kMatVecDot) continue;
    dispatch.pipeline.constants[capacity] = 0;
    dispatch.pipeline.constants[capacity] = largest.at(dispatch.pipeline);
  }
}

[[noreturn]] void ThrowStuck() {
  throw sdk::Error(RL_DEVICE_LOST,
                   "the device does not run all workgroups of a step at the same time; set "
                   "backend.options.persistent to off");
}

}  // namespace

Tuning TuningForGraph(const Tuning& device, const sdk::GraphView& graph) {
  Tuning tuning = device;
  // Parts of one dispatch cannot be timed.
  if (device.profile || !IsWorthOneDispatch(device, graph)) tuning.persistent_groups = 0;
  if (tuning.persistent_groups > 0) {
    tuning.few_groups = tuning.persistent_groups;
    tuning.wide = tuning.threads = tuning.persistent_threads;
  }
  return tuning;
}

VulkanPlan::VulkanPlan(VulkanDriver& driver, gpu::BlockMemory& blocks, gpu::KernelCache& kernels,
                       const sdk::GraphView& graph, const Tuning& device_tuning)
    : driver_(driver),
      kernels_(kernels),
      step_(blocks.Allocate(sizeof(StepWords), gpu::Residence::kShared)),
      memory_(driver, blocks),
      profile_(device_tuning.profile) {
  const StepWords empty{};
  std::memcpy(step_.mapped(), &empty, sizeof(empty));
  const Tuning tuning = TuningForGraph(device_tuning, graph);
  gpu::LoweredGraph lowered = gpu::Lower(memory_, graph, tuning, step_.address());
  if (graph.record_times() && driver_.capabilities().timestamp_bits > 0) {
    times_ = std::make_unique<gpu::DispatchTimes>(lowered.dispatches.size());
    ops_of_node_ = std::move(lowered.ops_of_node);
  }
  if (tuning.persistent_groups > 0) AgreeOnCapacities(lowered.dispatches);
  const std::vector<PipelineKey> kinds = gpu::KindsOf(lowered.dispatches);
  // Parts of one dispatch cannot be timed. Kernels stay as they are, and with them the results.
  const bool may_join = !graph.record_times() && MayJoin(tuning, kinds);
  if (may_join) joined_ = kernels_.Join(driver_, kinds);
  stats_.compilations = joined_ != nullptr ? 1 : std::max<uint64_t>(1, kernels_.Prepare(kinds));
  stats_.allocations = memory_.allocations() + 1;
  stats_.workspace_bytes = lowered.workspace_bytes;
  const size_t max_dispatches =
      gpu::TransientsAreUnaliased(graph, tuning) ? lowered.dispatches.size() : kMaxDispatches;
  const bool row_by_row = gpu::RunsRowByRow(graph, tuning);
  const auto record = [&](std::vector<Dispatch> dispatches, Recording& recording) {
    const std::vector<uint32_t> levels = gpu::LevelsOf(dispatches);
    const bool has_row_kernels = recording.t == 1 || row_by_row;
    if (has_row_kernels) gpu::Balance(dispatches, levels, tuning, row_by_row);
    if (joined_ != nullptr && has_row_kernels) {
      recording.persistent = std::make_shared<PersistentStep>(driver_, blocks, tuning, kinds,
                                                              dispatches, levels, step_.address());
      stats_.allocations += PersistentStep::kAllocations;
      stats_.workspace_bytes += recording.persistent->bytes();
    } else {
      Record(dispatches, levels, max_dispatches, recording);
    }
  };
  if (!gpu::HasOneRow(graph, tuning)) {
    record(std::move(lowered.dispatches), recordings_.emplace_back());
    return;
  }
  for (int64_t r = 0; r <= graph.max_r(); ++r) {
    Recording& recording = recordings_.emplace_back();
    recording.t = 1;
    recording.r = r;
    record(gpu::AtExtents(lowered.dispatches, 1, r), recording);
  }
}

VulkanPlan::~VulkanPlan() {
  driver_.Forget(*this);
  for (const Recording& recording : recordings_) {
    if (profile_ && recording.profile && recording.executed) {
      driver_.host().Log(RL_LOG_WARNING, std::to_string(recording.dispatches) + " dispatches on " +
                                             std::to_string(recording.levels) + " levels");
      for (const std::string& line : recording.profile->Report()) {
        driver_.host().Log(RL_LOG_WARNING, line);
      }
    }
    if (recording.commands.empty()) continue;  // no op has rows in such a step
    vkFreeCommandBuffers(driver_.handle(), driver_.pool(),
                         static_cast<uint32_t>(recording.commands.size()),
                         recording.commands.data());
  }
}

void VulkanPlan::Record(const std::vector<Dispatch>& dispatches,
                        const std::vector<uint32_t>& levels, size_t max_dispatches,
                        Recording& recording) {
  const std::vector<uint32_t> order = gpu::OrderOf(dispatches, levels);
  if (profile_ || times_) recording.profile = std::make_shared<Profile>(driver_, dispatches.size());
  for (std::span<const uint32_t> rest(order); !rest.empty();) {
    const auto part = rest.first(std::min(max_dispatches, rest.size()));
    recording.commands.push_back(RecordPart(dispatches, levels, part, recording.profile.get()));
    rest = rest.subspan(part.size());
  }
  recording.dispatches = dispatches.size();
  recording.levels = order.empty() ? 0 : levels[order.back()] + 1;
  ++stats_.recordings;
}

void VulkanPlan::RecordPersistent(Recording& recording) {
  const VkPipeline pipeline = static_cast<JoinedPipeline*>(joined_)->handle();
  VkCommandBuffer commands = Begin();
  recording.commands.push_back(commands);
  recording.persistent->Record(commands, driver_.pipelines().layout(), pipeline);
  End(commands);
  recording.dispatches = 1;
  recording.levels = 1;
  ++stats_.recordings;
}

VkCommandBuffer VulkanPlan::Begin() const {
  VkCommandBuffer commands = VK_NULL_HANDLE;
  const VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             nullptr, driver_.pool(),
                                             VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  Check(vkAllocateCommandBuffers(driver_.handle(), &allocate, &commands),
        "vkAllocateCommandBuffers");
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                       VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, nullptr};
  Check(vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  Barrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, kShaderAccess);
  return commands;
}

void VulkanPlan::End(VkCommandBuffer commands) {
  Barrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
          VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
          VK_ACCESS_HOST_READ_BIT | VK_ACCESS_MEMORY_READ_BIT);
  Check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
}

VkCommandBuffer VulkanPlan::RecordPart(const std::vector<Dispatch>& dispatches,
                                       const std::vector<uint32_t>& levels,
                                       std::span<const uint32_t> order, Profile* profile) {
  VkCommandBuffer commands = Begin();
  if (profile != nullptr) profile->Start(commands);
  VkPipeline bound = VK_NULL_HANDLE;
  uint32_t level = levels[order.front()];
  for (const uint32_t i : order) {
    const Dispatch& dispatch = dispatches[i];
    if (levels[i] != level || profile != nullptr) {
      level = levels[i];
      Barrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
              VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, kShaderAccess);
    }
    VkPipeline pipeline = static_cast<const Pipeline&>(kernels_.Get(dispatch.pipeline)).handle();
    if (pipeline != bound) {
      vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
      bound = pipeline;
    }
    vkCmdPushConstants(commands, driver_.pipelines().layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                       dispatch.push_bytes, dispatch.push.data());
    vkCmdDispatch(commands, dispatch.groups[0], dispatch.groups[1], dispatch.groups[2]);
    if (profile != nullptr) profile->After(commands, dispatch);
  }
  End(commands);
  return commands;
}

void VulkanPlan::Execute(int64_t t, int64_t r) {
  // The counters of a step that got stuck (arrival.glsl) may be anywhere.
  if (stuck_) ThrowStuck();
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
    driver_.Wait();
    const uint32_t extents[2] = {static_cast<uint32_t>(t), static_cast<uint32_t>(r)};
    std::memcpy(step_.mapped(), extents, sizeof(extents));
    t_ = t;
    r_ = r;
  }
  latest_ = nullptr;
  if (recording->persistent && recording->commands.empty()) RecordPersistent(*recording);
  if (times_) submitted_ = sdk::NowNanoseconds();
  for (VkCommandBuffer commands : recording->commands) driver_.Submit(commands);
  latest_ = &*recording;
  driver_.Remember(*this);
  recording->executed = true;
  running_ = true;
  ++stats_.executions;
  stats_.dispatches += recording->dispatches;
}

void VulkanPlan::CheckFailure() {
  if (!running_) return;
  running_ = false;
  uint32_t failed = 0;
  std::byte* word = step_.mapped() + offsetof(StepWords, failed_op);
  std::memcpy(&failed, word, sizeof(failed));
  if (failed == 0) return;
  latest_ = nullptr;
  constexpr uint32_t kNone = 0;
  std::memcpy(word, &kNone, sizeof(kNone));
  if (failed == kStuck) {
    stuck_ = true;
    ThrowStuck();
  }
  throw sdk::Error(RL_INVALID_ARGUMENT, "an index is out of range", failed - 1);
}

rl_plan_stats VulkanPlan::Stats() const { return stats_; }

std::span<const rl_op_time> VulkanPlan::Times() {
  if (!times_ || latest_ == nullptr || !latest_->profile) return {};
  times_->Start(submitted_);
  const std::span<const uint64_t> ends = latest_->profile->Ends();
  uint64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    times_->Add(ops_of_node_.at(latest_->profile->ops()[i]), begin, ends[i]);
    begin = ends[i];
  }
  return times_->records();
}

}  // namespace rullama::vulkan

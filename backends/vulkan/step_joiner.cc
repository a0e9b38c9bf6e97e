#include "backends/vulkan/step_joiner.h"

#include <algorithm>
#include <map>
#include <utility>

#include "backends/gpu/block_memory.h"
#include "backends/gpu/kernel_source.h"
#include "backends/gpu/matrix_product.h"
#include "backends/gpu/plan_steps.h"
#include "backends/vulkan/commands.h"
#include "backends/vulkan/driver.h"
#include "backends/vulkan/persistent.h"

namespace rullama::vulkan {
namespace {

// Invocations of a workgroup of a step in one dispatch: one is sure to fit on a multiprocessor.
constexpr uint32_t kPersistentThreads = 512;
constexpr uint32_t kPersistentSoftwareThreads = 128;

// The workgroups of a step in one dispatch, all of which run at the same time.
uint32_t GroupsOf(const Facts& facts) { return std::max(1U, facts.multiprocessors); }

// Whether steps of a plan are worth one dispatch: those of one row and those that run row by row.
// With experts whose products do not go by bytes they are not: these want more workgroups than stay
// on a device (557 tokens a second against 475 on an H200).
bool IsWorthOneDispatch(const gpu::Target& target, const sdk::GraphView& graph) {
  if (!gpu::StepsOf(graph, target).UseRowKernels()) return false;
  for (uint32_t i = 0; i < graph.op_count(); ++i) {
    const rl_op& op = graph.op(i);
    if (op.kind == RL_OP_grouped_matmul) return false;
    if (op.kind == RL_OP_moe_ffn && !gpu::ExpertsFitByteGemv(target, graph, op)) return false;
  }
  return true;
}

bool MayJoin(const gpu::Quirks& quirks, std::span<const PipelineKey> kinds) {
  if (kinds.empty() || kinds.size() > quirks.max_joined_kinds) return false;
  return !quirks.skipped_loops_pass_barriers ||
         std::ranges::none_of(kinds, [&](const PipelineKey& kind) {
           return gpu::TraitsOf(kind.shader).skips_loops;
         });
}

}  // namespace

std::optional<gpu::Target> VulkanStepJoiner::TargetFor(const gpu::Target& device,
                                                       const sdk::GraphView& graph) const {
  if (!IsWorthOneDispatch(device, graph)) return std::nullopt;
  gpu::Target target = device;
  gpu::Preferences& prefers = target.prefers;
  prefers.fixed_groups = true;
  prefers.few_groups = GroupsOf(driver_.facts());
  // attention wants the invocations of each of 32 keys in one subgroup.
  prefers.wide = prefers.threads =
      std::min(device.can.is_cpu ? kPersistentSoftwareThreads : kPersistentThreads,
               32 * device.can.subgroup_size);
  return target;
}

// Tasks share their memory anyway: those that differ only in its capacity become one.
void VulkanStepJoiner::MergeKinds(std::vector<Dispatch>& dispatches) const {
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

std::unique_ptr<gpu::JoinedKernels> VulkanStepJoiner::Join(std::span<const PipelineKey> kinds) {
  if (!MayJoin(driver_.target().quirks, kinds)) return nullptr;
  return driver_.pipelines().Join(kinds);
}

gpu::JoinedCommands VulkanStepJoiner::Record(const gpu::JoinedStep& step,
                                             gpu::BlockMemory& blocks) {
  auto persistent =
      std::make_unique<PersistentStep>(driver_, blocks, GroupsOf(driver_.facts()), step);
  const uint64_t bytes = persistent->bytes();
  return {std::make_unique<VulkanCommands>(driver_, std::move(persistent),
                                           static_cast<const JoinedPipeline&>(step.kernels)),
          PersistentStep::kAllocations, bytes};
}

}  // namespace rullama::vulkan

#include "backends/vulkan/step_joiner.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "backends/gpu/block_memory.h"
#include "backends/gpu/graph_facts.h"
#include "backends/gpu/kernel_source.h"
#include "backends/gpu/matrix_product.h"
#include "backends/vulkan/commands.h"
#include "backends/vulkan/driver.h"
#include "backends/vulkan/persistent.h"

namespace rullama::vulkan {
namespace {

// Invocations of a workgroup of a step in one dispatch: one is sure to fit on a multiprocessor.
constexpr uint32_t kPersistentThreads = 512;
constexpr uint32_t kPersistentSoftwareThreads = 128;

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
// in one alone, subgroups that skip a loop get past the barrier after it.
bool SoftwareJoins(std::span<const PipelineKey> kinds) {
  constexpr size_t kMaxKinds = 4;
  constexpr std::array kSkipLoops = {Shader::kAttentionRow, Shader::kAttentionStats,
                                     Shader::kAttentionGradQ, Shader::kAttentionGradKv};
  return kinds.size() <= kMaxKinds && std::ranges::none_of(kinds, [&](const PipelineKey& kind) {
           return std::ranges::find(kSkipLoops, kind.shader) != kSkipLoops.end();
         });
}

}  // namespace

std::optional<Tuning> VulkanStepJoiner::TuningFor(const Tuning& device,
                                                  const sdk::GraphView& graph) const {
  if (!IsWorthOneDispatch(device, graph)) return std::nullopt;
  const Capabilities& can = driver_.capabilities();
  Tuning tuning = device;
  tuning.persistent_groups = tuning.few_groups = std::max(1U, can.multiprocessors);
  // attention.comp wants the invocations of each of 32 keys in one subgroup.
  tuning.wide = tuning.threads = std::min(
      can.IsSoftware() ? kPersistentSoftwareThreads : kPersistentThreads, 32 * can.subgroup_size);
  return tuning;
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
  if (kinds.empty() || (driver_.capabilities().IsSoftware() && !SoftwareJoins(kinds)))
    return nullptr;
  return driver_.pipelines().Join(kinds);
}

gpu::JoinedCommands VulkanStepJoiner::Record(const gpu::JoinedStep& step,
                                             gpu::BlockMemory& blocks) {
  const uint32_t groups = std::max(1U, driver_.capabilities().multiprocessors);
  auto persistent = std::make_unique<PersistentStep>(driver_, blocks, groups, step);
  const uint64_t bytes = persistent->bytes();
  return {std::make_unique<VulkanCommands>(driver_, std::move(persistent),
                                           static_cast<const JoinedPipeline&>(step.kernels)),
          PersistentStep::kAllocations, bytes};
}

sdk::Error VulkanStepJoiner::StuckError() const {
  return sdk::Error(RL_DEVICE_LOST,
                    "the device does not run all workgroups of a step at the same time; set "
                    "backend.options.persistent to off");
}

}  // namespace rullama::vulkan

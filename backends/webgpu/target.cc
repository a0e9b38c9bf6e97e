#include "backends/webgpu/target.h"

#include <algorithm>
#include <bit>

namespace rullama::webgpu {
namespace {

// Invocations that walk a long row together: WebGPU grants 256.
constexpr uint32_t kWideThreads = 256;

}  // namespace

gpu::Target TargetFor(const Facts& facts) {
  gpu::Target target;
  target.can = {.is_cpu = facts.IsSoftware(),
                .float64 = false,
                // WGSL has no pointers to memory, and wgpu-native puts a barrier between dispatches
                // that write the same buffer, which most do.
                .follows_pointers = false,
                .overlaps_dispatches = false,
                .tells_times = false,
                .max_groups = {facts.max_groups, facts.max_groups, facts.max_groups},
                .shared_bytes = facts.shared_memory,
                .multiprocessors =
                    facts.IsSoftware() ? gpu::kSoftwareMultiprocessors : gpu::kUsualMultiprocessors,
                .subgroups = false,
                .row_attention = false,
                .half_attention = false,
                .special_kernels = false};
  target.prefers.wide = std::min(facts.IsSoftware() ? gpu::kWideSoftwareThreads : kWideThreads,
                                 std::bit_floor(facts.max_threads));
  target.prefers.few_groups = gpu::kGroupsOfMultiprocessor * target.can.multiprocessors;
  target.prefers.max_prologue = gpu::LongestStagedRow(facts.shared_memory);
  return target;
}

}  // namespace rullama::webgpu

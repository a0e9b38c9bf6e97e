#include "backends/opencl/target.h"

#include <algorithm>
#include <bit>

namespace rullama::opencl {
namespace {

// OpenCL names no limit but that of the number of work-items; NVIDIA's devices have these.
constexpr std::array<uint32_t, 3> kMaxGroups = {0x7FFFFFFF, 65535, 65535};
constexpr uint32_t kWarp = 32;
// Work-items that walk a long row together.
constexpr uint32_t kWideThreads = 256;
constexpr uint32_t kWideThreadsOfNvidia = 1024;
// Work-groups for each core of a CPU, which are one work-item, so that all cores are done at about
// the same time.
constexpr uint32_t kGroupsOfCore = 16;

gpu::Capabilities CapabilitiesFor(const Facts& facts, const DriverOptions& options) {
  const bool nvidia = options.form == Form::kNvidia;
  return {.is_cpu = facts.IsCpu() || options.form == Form::kCpu,
          .float64 = facts.float64,
          // A kernel may touch no buffer that is not among its arguments, and the queue runs
          // kernels in order.
          .follows_pointers = false,
          .overlaps_dispatches = false,
          .tells_times = true,
          .max_groups = kMaxGroups,
          .shared_bytes = static_cast<uint32_t>(std::min<uint64_t>(facts.local_memory, UINT32_MAX)),
          .multiprocessors = facts.compute_units,
          .subgroups = nvidia,
          .subgroup_size = nvidia ? kWarp : 1,
          .matrix_units = nvidia && options.tensor_cores,
          .row_attention = false,
          .half_attention = false,
          .special_kernels = false};
}

gpu::Preferences PreferencesFor(const Facts& facts, const DriverOptions& options,
                                const gpu::Capabilities& can) {
  gpu::Preferences prefers;
  if (options.form == Form::kCpu) {
    prefers.threads = prefers.wide = 1;
    prefers.few_groups = kGroupsOfCore * facts.compute_units;
    return prefers;
  }
  const uint32_t wide = can.subgroups ? kWideThreadsOfNvidia : kWideThreads;
  prefers.wide =
      static_cast<uint32_t>(std::min<size_t>(wide, std::bit_floor(facts.max_work_group)));
  prefers.few_groups = gpu::kGroupsOfMultiprocessor * facts.compute_units;
  prefers.max_prologue = gpu::LongestStagedRow(can.shared_bytes);
  return prefers;
}

}  // namespace

bool HasTensorCores(const Facts& facts) {
  constexpr uint32_t kAmpere = 80;
  return facts.nvidia >= kAmpere;
}

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options) {
  const gpu::Capabilities can = CapabilitiesFor(facts, options);
  return {can, PreferencesFor(facts, options, can), {}};
}

}  // namespace rullama::opencl

#include "backends/vulkan/target.h"

#include <algorithm>
#include <bit>

namespace rullama::vulkan {
namespace {

// Invocations that walk a long row together.
constexpr uint32_t kWideThreads = 1024;
constexpr uint32_t kVendorNvidia = 0x10DE;

// NVIDIA's GPUs do, as measured, and so does llvmpipe: its threads take runs of workgroups in turn.
bool StartsInOrder(const Facts& facts) {
  return facts.IsSoftware() || facts.properties.vendorID == kVendorNvidia;
}

gpu::Capabilities CapabilitiesFor(const Facts& facts, const DriverOptions& options) {
  const VkPhysicalDeviceLimits& limits = facts.properties.limits;
  const bool matrix_units = options.matrix_extension != MatrixExtension::kNone;
  const uint32_t usual =
      facts.IsSoftware() ? gpu::kSoftwareMultiprocessors : gpu::kUsualMultiprocessors;
  return {.is_cpu = facts.IsSoftware(),
          .float64 = facts.float64,
          .follows_pointers = true,
          .overlaps_dispatches = true,
          .starts_in_order = StartsInOrder(facts),
          .tells_times = facts.timestamp_bits > 0,
          .max_groups = {limits.maxComputeWorkGroupCount[0], limits.maxComputeWorkGroupCount[1],
                         limits.maxComputeWorkGroupCount[2]},
          .shared_bytes = limits.maxComputeSharedMemorySize,
          .multiprocessors = facts.multiprocessors > 0 ? facts.multiprocessors : usual,
          .subgroups = options.subgroups,
          .subgroup_size = facts.subgroup_size,
          .matrix_units = matrix_units,
          .integer_dot = options.integer_dot,
          .half_norms = matrix_units};
}

gpu::Preferences PreferencesFor(const Facts& facts, const gpu::Capabilities& can) {
  gpu::Preferences prefers;
  prefers.wide = std::min(can.is_cpu ? gpu::kWideSoftwareThreads : kWideThreads,
                          std::bit_floor(facts.properties.limits.maxComputeWorkGroupInvocations));
  prefers.few_groups = gpu::kGroupsOfMultiprocessor * can.multiprocessors;
  prefers.max_prologue = gpu::LongestStagedRow(can.shared_bytes);
  prefers.row_kernels = can.subgroups && (can.integer_dot || can.is_cpu);
  return prefers;
}

// Devices that are CPUs are llvmpipe.
gpu::Quirks QuirksOf(const Facts& facts) {
  constexpr size_t kMaxJoinedKinds = 4;
  if (!facts.IsSoftware()) return {};
  return {.skipped_loops_pass_barriers = true, .max_joined_kinds = kMaxJoinedKinds};
}

}  // namespace

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options) {
  const gpu::Capabilities can = CapabilitiesFor(facts, options);
  return {can, PreferencesFor(facts, can), QuirksOf(facts)};
}

}  // namespace rullama::vulkan

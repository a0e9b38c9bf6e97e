#include "backends/cuda/target.h"

namespace rullama::cuda {
namespace {

// Limits that CUDA grants every device.
constexpr std::array<uint32_t, 3> kMaxGroups = {0x7FFFFFFF, 65535, 65535};
constexpr uint32_t kWarp = 32;
// Threads that walk a long row together.
constexpr uint32_t kWideThreads = 1024;
// Blocks of 256 threads that a multiprocessor takes at a time.
constexpr uint32_t kGroupsOfMultiprocessor = 4;
// The times of two tiles that were measured (preferences.h).
constexpr std::array kTileTimes = {
    gpu::TileTimes{gpu::kLargeCoopTile, 2, 1480, 2180, 7900},
    gpu::TileTimes{gpu::kSmallCoopTile, 3, 710, 1080, 3000},
};

}  // namespace

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options) {
  gpu::Target target;
  target.can = {.is_cpu = false,
                .float64 = true,
                .follows_pointers = true,
                // The stream runs kernels in order.
                .overlaps_dispatches = false,
                .tells_times = true,
                .max_groups = kMaxGroups,
                .shared_bytes = facts.shared_memory,
                .multiprocessors = facts.multiprocessors,
                .subgroups = true,
                .subgroup_size = kWarp,
                .matrix_units = options.tensor_cores,
                .integer_dot = options.integer_dot,
                .special_kernels = false};
  target.prefers.wide = kWideThreads;
  target.prefers.few_groups = kGroupsOfMultiprocessor * facts.multiprocessors;
  // Norms are dispatches of their own: a product that applies them has an array whose length is
  // that of a row.
  target.prefers.max_prologue = 0;
  target.prefers.tile_times = kTileTimes;
  return target;
}

}  // namespace rullama::cuda

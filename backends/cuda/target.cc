#include "backends/cuda/target.h"

#include "backends/cuda/forms.h"

namespace rullama::cuda {
namespace {

// Limits that CUDA grants every device.
constexpr std::array<uint32_t, 3> kMaxGroups = {0x7FFFFFFF, 65535, 65535};
constexpr uint32_t kWarp = 32;
// Threads that walk a long row together.
constexpr uint32_t kWideThreads = 1024;
// Blocks of products of one row: one, so that the next kernel finds room and asks for its weights.
constexpr uint32_t kRowGroupsOfMultiprocessor = 1;

// Rows of matvec_rows.cuh that fit the shared memory of a block; 1 if no two do.
uint32_t RowsOnMatrices(const Facts& facts) {
  uint32_t most = 1;
  for (const uint32_t rows : kMatrixRows) {
    if (BytesOfMatrixRows(rows) <= facts.most_shared_memory) most = rows;
  }
  return most;
}

}  // namespace

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options) {
  gpu::Target target;
  target.can = {.is_cpu = false,
                .float64 = true,
                .follows_pointers = true,
                // Dispatches of one level overlap (commands.h).
                .overlaps_dispatches = true,
                .starts_in_order = true,  // on all GPUs that we measured
                .tells_times = true,
                .max_groups = kMaxGroups,
                .shared_bytes = facts.shared_memory,
                .multiprocessors = facts.multiprocessors,
                .subgroups = true,
                .subgroup_size = kWarp,
                .matrix_units = options.tensor_cores,
                .multiplies_by_warpgroups =
                    facts.has_warpgroups && options.tensor_cores ? HasWarpgroupFormsFor : nullptr,
                .integer_dot = options.integer_dot,
                .integer_matrix_rows = options.integer_dot ? RowsOnMatrices(facts) : 0,
                .half_norms = options.tensor_cores,
                .block_attention = true,
                .special_kernels = false,
                .norms_by_bytes = true,
                .has_kernels_for = HasFormsFor};
  target.prefers.wide = kWideThreads;
  target.prefers.row_kernels = options.integer_dot;
  target.prefers.few_groups = gpu::kGroupsOfMultiprocessor * facts.multiprocessors;
  target.prefers.row_threads = kRowThreads;
  target.prefers.row_groups = kRowGroupsOfMultiprocessor * facts.multiprocessors;
  if (options.integer_dot) target.prefers.max_prologue = 4 * kRowThreads * kMostTurns;
  return target;
}

}  // namespace rullama::cuda

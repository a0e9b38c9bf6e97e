// What a graph is lowered for: what the kernels of a driver can do on its device, what pays there,
// and what the driver gets wrong. Lowering knows nothing else of drivers. Plain data; a plan may
// override its copy.
#pragma once

#include <rullama/sdk/dtype.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/gpu/preferences.h"

namespace rullama::gpu {

// What a driver says of its device, less what options switch off.
struct Capabilities {
  bool is_cpu = false;  // few wide workgroups, no splitting for latency
  bool float64 = false;
  // Whether kernels may read addresses from memory. If not, all addresses are arguments.
  bool follows_pointers = false;
  // Whether dispatches without a barrier between them may run at the same time.
  bool overlaps_dispatches = false;
  // Whether workgroups of a dispatch start in the order of their numbers, so that one may wait for
  // another of a lower number. No API promises it.
  bool starts_in_order = false;
  bool tells_times = false;  // when dispatches ran
  // The most workgroups of a dispatch along each axis.
  std::array<uint32_t, 3> max_groups{65535, 65535, 65535};
  uint32_t shared_bytes = 0;     // shared memory of a workgroup
  uint32_t multiprocessors = 1;  // each runs workgroups of its own
  bool subgroups = false;        // kernels use operations of subgroups
  uint32_t subgroup_size = 1;
  bool matrix_units = false;  // products of many rows in f16
  // Whether there is a kernel for such products with weights of a type in which groups of four
  // subgroups multiply (matmul_warpgroup); null: there is none.
  bool (*multiplies_by_warpgroups)(DType) = nullptr;
  bool integer_dot = false;  // products of one row by dot products of bytes
  // The most rows of x that a workgroup multiplies together on matrix units, in integers, so that
  // each has the sums that it has alone: a power of two; 1: rows are multiplied one by one; 0:
  // there is no such kernel, and up to four rows share dot products. Shared memory need not have
  // room for whole rows.
  uint32_t integer_matrix_rows = 0;
  bool half_norms = false;     // to_half applies the norms of its rows (kernels.def)
  bool row_attention = true;   // there is a kernel for attention with one query row
  bool half_attention = true;  // there is one for attention of many rows on matrix units
  // The kernel of half_attention also reads keys and values in blocks.
  bool block_attention = false;
  // There are others for attention, and those for soft embeddings, on matrix units.
  bool special_kernels = true;
  // Only matvec_dot, not matvec, applies norms to the row that it reads.
  bool norms_by_bytes = false;
  // Whether the plugin was built with kernels for a type of weights; null: it has those for all.
  bool (*has_kernels_for)(DType) = nullptr;
  // Largest piece of a weight: a larger weight lies in several allocations (weights.h).
  uint64_t max_piece_bytes = UINT64_MAX;
};

// Faults of drivers, and how lowering avoids them. Each row says where it was seen.
struct Quirks {
  // In a step of one dispatch, subgroups that skip a loop get past the barrier after it: kernels
  // keep them together where they can, and others are not joined (llvmpipe).
  bool skipped_loops_pass_barriers = false;
  // The most kinds of kernels that may be joined: every side of a branch runs, masked, and follows
  // invalid pointers there, so that whole models crash (llvmpipe).
  size_t max_joined_kinds = SIZE_MAX;
};

struct Target {
  Capabilities can;
  Preferences prefers;
  Quirks quirks;

  // The workgroup size of a kernel that prefers `wanted` invocations.
  [[nodiscard]] uint32_t Threads(uint32_t wanted) const {
    return prefers.threads > 0 ? prefers.threads : wanted;
  }
};

}  // namespace rullama::gpu

// The properties and options of a device that plans depend on. Plain data; a plan may override its
// copy.
#pragma once

#include <cstdint>

namespace rullama::gpu {

// Tiling and fusion parameters of a device.
struct Tuning {
  bool subgroups = false;  // use the shaders' form with subgroup operations
  uint32_t subgroup_size = 1;
  uint32_t wide = 256;              // invocations of a workgroup for long rows
  bool software = false;            // a CPU: few wide workgroups, no splitting for latency
  bool cooperative_matrix = false;  // products of many rows in f16 on matrix units
  bool half_norms = false;          // to_half applies the norms of its rows (kernels.def)
  bool precise_products = false;    // activations on matrix units are sums of two f16 numbers
  bool integer_dot = false;         // products of one row by dot products of bytes
  uint32_t shared_bytes = 0;        // shared memory of a workgroup
  bool profile = false;             // time each dispatch, one after the other
  int64_t max_prologue = 0;         // longest row, in elements, that a GEMV may normalise itself
  uint32_t few_groups = 1;          // workgroups that keep the device busy
  uint32_t multiprocessors = 1;     // each runs workgroups of its own
  // Use the dedicated kernels for attention with one query row, and for attention and soft
  // embeddings on matrix units.
  bool special_kernels = true;
  // The kernels of one row compute several rows side by side (RunsRowByRow).
  bool row_kernels = false;
  // Workgroups, and invocations of each, of the persistent dispatch that runs a whole step of one
  // row (vulkan/persistent.h). 0 workgroups: the device does not use one.
  uint32_t persistent_groups = 0;
  uint32_t persistent_threads = 0;
  uint32_t threads = 0;  // workgroup size of all shaders; 0: each shader chooses its own
  // Largest piece of a weight: a larger weight lies in several allocations (weights.h).
  uint64_t max_piece_bytes = UINT64_MAX;

  // The workgroup size of a shader that prefers `wanted` invocations.
  [[nodiscard]] uint32_t Threads(uint32_t wanted) const { return threads > 0 ? threads : wanted; }
};

// Largest number of batch rows that uses the GEMV kernel.
inline constexpr int64_t kFewProductRows = 8;
// Kernels for matrix units: rows, columns and terms of a product, invocations of a subgroup, and
// the most invocations of a workgroup, which has whole subgroups.
inline constexpr uint32_t kMatrixSide = 16;
inline constexpr uint32_t kMatrixSubgroup = 32;
inline constexpr uint32_t kMaxMatrixThreads = 256;
constexpr bool FitsMatrixThreads(uint32_t threads) {
  return threads % kMatrixSubgroup == 0 && threads <= kMaxMatrixThreads;
}
// Longest row of which topk_few.comp finds the largest.
inline constexpr int64_t kFewTopKColumns = 512;

}  // namespace rullama::gpu

// What pays on a device: sizes, counts and times that were measured, or follow from what it has.
// Any values give right results. Plain data; a plan may override its copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace rullama::gpu {

// Workgroups of 256 invocations that a multiprocessor takes at a time.
inline constexpr uint32_t kGroupsOfMultiprocessor = 4;
// Multiprocessors that are assumed where a driver does not tell how many there are; of drivers in
// software those of a small processor.
inline constexpr uint32_t kUsualMultiprocessors = 32;
inline constexpr uint32_t kSoftwareMultiprocessors = 2;
// Invocations of drivers in software that walk a long row together.
inline constexpr uint32_t kWideSoftwareThreads = 64;

// The longest row, in elements, that a GEMV can stage in shared memory, where it needs 8 KiB more.
constexpr int64_t LongestStagedRow(uint32_t shared_bytes) {
  constexpr uint32_t kOtherBytes = 8192;
  return (shared_bytes - kOtherBytes) / sizeof(float);
}

// Kernels for matrix units: rows, columns and terms of a product, invocations of a subgroup, and
// the most invocations of a workgroup, which has whole subgroups.
inline constexpr uint32_t kMatrixSide = 16;
inline constexpr uint32_t kMatrixSubgroup = 32;
inline constexpr uint32_t kMaxMatrixThreads = 256;
constexpr bool FitsMatrixThreads(uint32_t threads) {
  return threads % kMatrixSubgroup == 0 && threads <= kMaxMatrixThreads;
}

// A tile of matmul_coop.comp and the part of it that a subgroup computes. Columns are results, of
// gated products those of both matrices.
struct CoopTile {
  uint32_t rows, columns, subgroup_rows, subgroup_columns;
  [[nodiscard]] constexpr uint32_t threads() const {
    return rows / subgroup_rows * (columns / subgroup_columns) * kMatrixSubgroup;
  }
  friend constexpr bool operator==(const CoopTile&, const CoopTile&) = default;
};
// The tile of dense products that do not keep a device busy, and of experts with some 30 to 90
// rows.
inline constexpr CoopTile kSmallCoopTile{64, 64, 32, 32};
// The one that reads least for each result.
inline constexpr CoopTile kLargeCoopTile{128, 128, 64, 64};

// A tile, the workgroups of it that run on a multiprocessor at a time, and their times in
// nanoseconds: of a step of a workgroup that runs there alone, of a step of as many as fit, and of
// what else they do.
struct TileTimes {
  CoopTile tile;
  uint64_t resident, alone, together, other;
};
// Fitted to an H200 with Vulkan, Q4_K_M and at most four parts (docs/lab/vulkan.md, "Which tiles
// take least time"); of other devices only the ratios count, unless
// their own are measured (tile_tuning.h).
inline constexpr std::array kMeasuredTileTimes = {
    TileTimes{kLargeCoopTile, 2, 1480, 2180, 7900},
    TileTimes{{128, 128, 64, 32}, 1, 1240, 1240, 5400},
    TileTimes{kSmallCoopTile, 3, 710, 1080, 3000},
};
static_assert(std::ranges::all_of(kMeasuredTileTimes, [](const TileTimes& times) {
  return FitsMatrixThreads(times.tile.threads());
}));

// Tiles of matmul_warpgroup: eight subgroups have all of its rows.
inline constexpr CoopTile kLargeWarpgroupTile{128, 256, 128, 32};
inline constexpr CoopTile kSmallWarpgroupTile{128, 128, 128, 16};
// Their times, of steps of 128 terms. Fitted to an H200 with Q4_K (docs/lab/cuda.md, "Products by
// warpgroups").
inline constexpr std::array kMeasuredWarpgroupTimes = {
    TileTimes{kLargeWarpgroupTile, 1, 2600, 2600, 10000},
    TileTimes{kSmallWarpgroupTile, 1, 1590, 1590, 6900},
};

// Workgroup size of a GEMV that first stages its row in shared memory.
inline constexpr uint32_t kPrologueThreads = 256;

struct Preferences {
  uint32_t threads = 0;     // workgroup size of all kernels; 0: each kernel chooses its own
  uint32_t wide = 256;      // invocations of a workgroup for long rows
  uint32_t few_groups = 1;  // workgroups that keep the device busy
  // Products of one row by dot products of bytes: invocations of a workgroup, and workgroups of a
  // level; 0: few_groups.
  uint32_t row_threads = kPrologueThreads;
  uint32_t row_groups = 0;
  [[nodiscard]] uint32_t RowGroups() const { return row_groups > 0 ? row_groups : few_groups; }
  // These workgroups run for a whole step: a product has no more of them.
  bool fixed_groups = false;
  int64_t max_prologue = 0;  // longest row, in elements, that a GEMV may normalise itself
  // The kernels of one row compute several rows side by side (StepKind::kRowByRow).
  bool row_kernels = false;
  bool precise_products = false;  // activations on matrix units are sums of two f16 numbers
  // Of products on matrix units: the tiles to choose from, and what it costs to add the sums of
  // parts: nanoseconds, and the bytes that are read or written in one.
  std::span<const TileTimes> tile_times = kMeasuredTileTimes;
  std::span<const TileTimes> warpgroup_times = kMeasuredWarpgroupTimes;
  uint64_t add_time = 8000, add_bytes = 3500;
};

}  // namespace rullama::gpu

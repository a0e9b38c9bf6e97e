// How a product of many rows is divided among workgroups: the tile that each computes, and the
// parts of its terms. Pure functions; the order of a sum follows from them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/gpu/target.h"

namespace rullama::gpu {

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Dense products side by side that read the same rows.
struct CoopShape {
  uint64_t rows = 0;
  uint64_t columns = 0;  // results of a row, of all of them
  uint64_t steps = 0;    // of the kernel, through all terms
  uint64_t max_parts = 1;
};

// How such products are computed: tiles, and the workgroups that share the terms of each of them.
struct CoopDivision {
  CoopTile tile;
  uint64_t parts = 1;
};

// The division that takes least time. Large tiles read less, but may leave a part of the device
// idle. At most 32 or 64 rows, as of requests that are decoded together, take the lowest tile that
// holds them.
[[nodiscard]] CoopDivision DivisionOf(const Target& target, const CoopShape& shape);

// The same of products by warpgroups.
[[nodiscard]] CoopDivision WarpgroupDivisionOf(const Target& target, const CoopShape& shape);

// The tile of products of `experts` experts that have `pairs` rows in all. A tile reads and decodes
// the weights of its expert, so a low one has room for twice the rows of an average expert: few
// experts then need a second one. The highest one computes more in the same time, also where a
// quarter of its rows is empty.
[[nodiscard]] CoopTile ExpertTileOf(uint64_t pairs, uint64_t experts);

// Rows of a tile of the f32 kernel `matmul`: the least of 16, 32 and 64 that holds `rows`, or 64.
// The kernel computes all rows of a tile, also those that are not there.
[[nodiscard]] constexpr uint32_t F32TileRows(uint64_t rows) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil(rows), 16, 64));
}

// At most `parts` parts, of which each has as many of the steps as the others, the last one fewer,
// and none has no step.
constexpr uint64_t WholeParts(uint64_t steps, uint64_t parts) {
  return CeilDiv(steps, CeilDiv(steps, parts));
}

// The number of workgroups that share the terms of a tile of sums in f32: more than one where there
// are too few tiles to keep a device busy, at most one for each `part_terms` terms.
[[nodiscard]] uint64_t PartsOfSums(const Target& target, uint64_t tiles, uint64_t terms,
                                   uint64_t part_terms);

}  // namespace rullama::gpu

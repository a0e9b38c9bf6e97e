// How a product of many rows is divided among workgroups: the tile of matmul_coop.comp that each
// computes, and the parts of its terms. Pure functions; the order of a sum follows from them.
#pragma once

#include <cstdint>

#include "backends/gpu/tuning.h"

namespace rullama::gpu {

constexpr uint64_t CeilDiv(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// A tile of matmul_coop.comp and the part of it that a subgroup computes. Columns are results, of
// gated products those of both matrices.
struct CoopTile {
  uint32_t rows, columns, subgroup_rows, subgroup_columns;
  [[nodiscard]] constexpr uint32_t threads() const {
    return rows / subgroup_rows * (columns / subgroup_columns) * kMatrixSubgroup;
  }
};

// The tile of dense products that do not keep a device busy, and the highest one of experts.
inline constexpr CoopTile kSmallCoopTile{64, 64, 32, 32};

// The tile of a dense product of `rows` rows. Large tiles read less; a device is busy only with
// enough of them, of all products side by side that have `columns` results of a row together. At
// most 32 or 64 rows, as of requests that are decoded together, take the lowest tile that holds
// them.
[[nodiscard]] CoopTile CoopTileOf(const Tuning& tuning, uint64_t rows, uint64_t columns);

// The tile of products of `experts` experts that have `pairs` rows in all. A tile reads and decodes
// the weights of its expert, so a low one has room for twice the rows of an average expert: few
// experts then need a second one.
[[nodiscard]] CoopTile ExpertTileOf(uint64_t pairs, uint64_t experts);

// The number of workgroups that share the terms of a tile of sums: more than one where there are
// too few tiles to keep a device busy, at most one for each `part_terms` terms.
[[nodiscard]] uint64_t PartsOfSums(const Tuning& tuning, uint64_t tiles, uint64_t terms,
                                   uint64_t part_terms);

}  // namespace rullama::gpu

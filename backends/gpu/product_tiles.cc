#include "backends/gpu/product_tiles.h"

#include <algorithm>
#include <span>

namespace rullama::gpu {
namespace {

constexpr CoopTile kLow{32, 64, 16, 32}, kFewRows{32, 64, 32, 32};

static_assert(FitsMatrixThreads(kLow.threads()) && FitsMatrixThreads(kFewRows.threads()));

uint64_t TilesOf(const CoopTile& tile, const CoopShape& shape) {
  return CeilDiv(shape.rows, tile.rows) * CeilDiv(shape.columns, tile.columns);
}

// Nanoseconds of products that are divided so. Workgroups of a first turn spread over the
// multiprocessors; later ones go where others end, so that a turn takes as long as a full one.
uint64_t TimeOf(const Target& target, const CoopShape& shape, const TileTimes& times,
                uint64_t parts) {
  const uint64_t groups = CeilDiv(TilesOf(times.tile, shape) * parts, target.can.multiprocessors);
  const uint64_t steps = CeilDiv(shape.steps, parts), turns = CeilDiv(groups, times.resident);
  uint64_t step = times.together;
  if (groups < times.resident) {
    step = times.alone + (times.together - times.alone) * (groups - 1) / (times.resident - 1);
  }
  const uint64_t time = turns * (step * steps + times.other);
  const uint64_t bytes = (parts + 1) * shape.rows * shape.columns * sizeof(float);
  return parts == 1 ? time : time + target.prefers.add_time + bytes / target.prefers.add_bytes;
}

// The division that takes least time, of tiles with these times.
CoopDivision BestOf(const Target& target, const CoopShape& shape,
                    std::span<const TileTimes> all_times) {
  CoopDivision best;
  uint64_t least = UINT64_MAX;
  for (const TileTimes& times : all_times) {
    for (uint64_t wanted = 1; wanted <= shape.max_parts; ++wanted) {
      const uint64_t parts = WholeParts(shape.steps, wanted);
      const uint64_t time = TimeOf(target, shape, times, parts);
      if (time < least) best = {times.tile, parts};
      least = std::min(least, time);
    }
  }
  return best;
}

}  // namespace

CoopDivision DivisionOf(const Target& target, const CoopShape& shape) {
  if (shape.rows <= kSmallCoopTile.rows) {
    const CoopTile& tile = shape.rows <= kLow.rows ? kLow : kSmallCoopTile;
    const uint64_t wanted = target.prefers.few_groups / std::max<uint64_t>(TilesOf(tile, shape), 1);
    return {tile, WholeParts(shape.steps, std::clamp<uint64_t>(wanted, 1, shape.max_parts))};
  }
  return BestOf(target, shape, target.prefers.tile_times);
}

CoopDivision WarpgroupDivisionOf(const Target& target, const CoopShape& shape) {
  return BestOf(target, shape, target.prefers.warpgroup_times);
}

CoopTile ExpertTileOf(uint64_t pairs, uint64_t experts) {
  if (4 * pairs >= 3 * kLargeCoopTile.rows * experts) return kLargeCoopTile;
  return 2 * pairs <= kFewRows.rows * experts ? kFewRows : kSmallCoopTile;
}

uint64_t PartsOfSums(const Target& target, uint64_t tiles, uint64_t terms, uint64_t part_terms) {
  const uint64_t max_parts = std::max<uint64_t>(CeilDiv(terms, part_terms), 1);
  return std::clamp<uint64_t>(target.prefers.few_groups / std::max<uint64_t>(tiles, 1), 1,
                              max_parts);
}

}  // namespace rullama::gpu

#include "backends/gpu/product_tiles.h"

#include <algorithm>

namespace rullama::gpu {
namespace {

constexpr CoopTile kLarge{128, 128, 64, 64}, kLow{32, 64, 16, 32}, kFewRows{32, 64, 32, 32};

// A tile, the workgroups of it that run on a multiprocessor at a time, and their times in
// nanoseconds: of a step of a workgroup that runs there alone, of a step of as many as fit, and of
// what else they do. Fitted to an H200 with Vulkan, Q4_K_M and at most four parts
// (docs/lab/vulkan.md, "Which tiles take least time"); of other devices only the ratios count.
struct TileTimes {
  CoopTile tile;
  uint64_t resident, alone, together, other;
};
constexpr TileTimes kTileTimes[] = {
    {kLarge, 2, 1480, 2180, 7900},
    {{128, 128, 64, 32}, 1, 1240, 1240, 5400},
    {kSmallCoopTile, 3, 710, 1080, 3000},
};
// The dispatch that adds the sums of parts takes this time, and a nanosecond for so many bytes that
// it reads or writes.
constexpr uint64_t kAddTime = 8000, kAddBytes = 3500;

static_assert(FitsMatrixThreads(kLow.threads()) && FitsMatrixThreads(kFewRows.threads()) &&
              std::ranges::all_of(kTileTimes, [](const TileTimes& times) {
                return FitsMatrixThreads(times.tile.threads());
              }));

uint64_t TilesOf(const CoopTile& tile, const CoopShape& shape) {
  return CeilDiv(shape.rows, tile.rows) * CeilDiv(shape.columns, tile.columns);
}

// Nanoseconds of products that are divided so. Workgroups of a first turn spread over the
// multiprocessors; later ones go where others end, so that a turn takes as long as a full one.
uint64_t TimeOf(const Tuning& tuning, const CoopShape& shape, const TileTimes& times,
                uint64_t parts) {
  const uint64_t groups = CeilDiv(TilesOf(times.tile, shape) * parts, tuning.multiprocessors);
  const uint64_t steps = CeilDiv(shape.steps, parts), turns = CeilDiv(groups, times.resident);
  uint64_t step = times.together;
  if (groups < times.resident) {
    step = times.alone + (times.together - times.alone) * (groups - 1) / (times.resident - 1);
  }
  const uint64_t time = turns * (step * steps + times.other);
  const uint64_t bytes = (parts + 1) * shape.rows * shape.columns * sizeof(float);
  return parts == 1 ? time : time + kAddTime + bytes / kAddBytes;
}

}  // namespace

CoopDivision DivisionOf(const Tuning& tuning, const CoopShape& shape) {
  if (shape.rows <= kSmallCoopTile.rows) {
    const CoopTile& tile = shape.rows <= kLow.rows ? kLow : kSmallCoopTile;
    const uint64_t wanted = tuning.few_groups / std::max<uint64_t>(TilesOf(tile, shape), 1);
    return {tile, WholeParts(shape.steps, std::clamp<uint64_t>(wanted, 1, shape.max_parts))};
  }
  CoopDivision best;
  uint64_t least = UINT64_MAX;
  for (const TileTimes& times : kTileTimes) {
    for (uint64_t wanted = 1; wanted <= shape.max_parts; ++wanted) {
      const uint64_t parts = WholeParts(shape.steps, wanted);
      const uint64_t time = TimeOf(tuning, shape, times, parts);
      if (time < least) best = {times.tile, parts};
      least = std::min(least, time);
    }
  }
  return best;
}

CoopTile ExpertTileOf(uint64_t pairs, uint64_t experts) {
  if (4 * pairs >= 3 * kLarge.rows * experts) return kLarge;
  return 2 * pairs <= kFewRows.rows * experts ? kFewRows : kSmallCoopTile;
}

uint64_t PartsOfSums(const Tuning& tuning, uint64_t tiles, uint64_t terms, uint64_t part_terms) {
  const uint64_t max_parts = std::max<uint64_t>(CeilDiv(terms, part_terms), 1);
  return std::clamp<uint64_t>(tuning.few_groups / std::max<uint64_t>(tiles, 1), 1, max_parts);
}

}  // namespace rullama::gpu

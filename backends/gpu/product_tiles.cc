#include "backends/gpu/product_tiles.h"

#include <algorithm>

namespace rullama::gpu {
namespace {

constexpr CoopTile kLarge{128, 128, 64, 32}, kMiddle{128, 64, 64, 32}, kLow{32, 64, 16, 32},
    kFewRows{32, 64, 32, 32};
static_assert(FitsMatrixThreads(kLarge.threads()) && FitsMatrixThreads(kMiddle.threads()) &&
              FitsMatrixThreads(kSmallCoopTile.threads()) && FitsMatrixThreads(kLow.threads()) &&
              FitsMatrixThreads(kFewRows.threads()));

// A device counts as busy with a quarter of Tuning::few_groups of large tiles, and with an eighth
// of middle ones.
constexpr uint64_t kLargeShare = 4, kMiddleShare = 8;

}  // namespace

CoopTile CoopTileOf(const Tuning& tuning, uint64_t rows, uint64_t columns) {
  if (rows <= kLow.rows) return kLow;
  if (rows <= kSmallCoopTile.rows) return kSmallCoopTile;
  const auto is_busy = [&](const CoopTile& tile, uint64_t share) {
    return CeilDiv(rows, tile.rows) * CeilDiv(columns, tile.columns) * share >= tuning.few_groups;
  };
  if (is_busy(kLarge, kLargeShare)) return kLarge;
  return is_busy(kMiddle, kMiddleShare) ? kMiddle : kSmallCoopTile;
}

CoopTile ExpertTileOf(uint64_t pairs, uint64_t experts) {
  return 2 * pairs <= kFewRows.rows * experts ? kFewRows : kSmallCoopTile;
}

uint64_t PartsOfSums(const Tuning& tuning, uint64_t tiles, uint64_t terms, uint64_t part_terms) {
  const uint64_t max_parts = std::max<uint64_t>(CeilDiv(terms, part_terms), 1);
  return std::clamp<uint64_t>(tuning.few_groups / std::max<uint64_t>(tiles, 1), 1, max_parts);
}

}  // namespace rullama::gpu

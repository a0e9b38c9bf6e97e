#include "backends/gpu/product_tiles.h"

#include <gtest/gtest.h>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

// An H200: four workgroups on each of 132 multiprocessors.
Tuning LargeGpu() {
  Tuning tuning;
  tuning.few_groups = 528;
  return tuning;
}

TEST(CoopTileOf, GrowsWithTheRowsAndResultsThatKeepADeviceBusy) {
  struct {
    uint64_t rows, columns;
    uint32_t tile_rows, tile_columns;
  } constexpr kCases[] = {
      {17, 2048, 32, 64},      // requests that are decoded together
      {32, 262144, 32, 64},    //
      {64, 262144, 64, 64},    //
      {512, 256, 64, 64},      // keys of E2B alone
      {512, 2560, 128, 64},    // queries, keys and values of E2B together
      {2520, 768, 128, 64},    // a product of the picture tower of E2B
      {2520, 2304, 128, 128},  // its queries, keys and values
      {2048, 12288, 128, 128},
  };
  for (const auto& c : kCases) {
    const CoopTile tile = CoopTileOf(LargeGpu(), c.rows, c.columns);
    EXPECT_EQ(tile.rows, c.tile_rows) << c.rows << " x " << c.columns;
    EXPECT_EQ(tile.columns, c.tile_columns) << c.rows << " x " << c.columns;
  }
}

TEST(ExpertTileOf, HoldsTwiceTheRowsOfAnAverageExpert) {
  struct {
    uint64_t pairs, experts;
    uint32_t tile_rows;
  } constexpr kCases[] = {
      {9 * 8, 128, 32},     // the fewest rows that experts of 26B-A4B multiply in tiles
      {256 * 8, 128, 32},   // a canvas
      {257 * 8, 128, 64},   //
      {2048 * 8, 128, 64},  // a prompt
      {0, 128, 32},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(ExpertTileOf(c.pairs, c.experts).rows, c.tile_rows) << c.pairs;
  }
}

// Whichever tile is chosen, a subgroup has whole matrices and of gated products both halves, and
// the invocations load the same number of vectors each.
TEST(ExpertTileOf, DividesEvenlyAmongInvocations) {
  constexpr uint32_t kTermsOfVector = 8;
  for (const uint64_t rows : {16, 64}) {
    const CoopTile tile = ExpertTileOf(rows, 1);
    EXPECT_EQ(tile.rows % tile.subgroup_rows, 0U);
    EXPECT_EQ(tile.subgroup_rows % kMatrixSide, 0U);
    EXPECT_EQ(tile.columns % tile.subgroup_columns, 0U);
    EXPECT_EQ(tile.subgroup_columns % (2 * kMatrixSide), 0U);
    EXPECT_GE(tile.threads(), tile.rows);
    EXPECT_EQ(tile.rows * kCoopTerms / kTermsOfVector % tile.threads(), 0U);
  }
}

TEST(PartsOfSums, KeepADeviceBusyWithFewTiles) {
  EXPECT_EQ(PartsOfSums(LargeGpu(), 240, 768, 256), 2U);  // 20 x 12 tiles
  EXPECT_EQ(PartsOfSums(LargeGpu(), 360, 768, 256), 1U);  // three such products side by side
  EXPECT_EQ(PartsOfSums(LargeGpu(), 10, 768, 256), 3U);   // no fewer than 256 terms each
  EXPECT_EQ(PartsOfSums(LargeGpu(), 10, 100, 256), 1U);
  EXPECT_EQ(PartsOfSums(LargeGpu(), 0, 768, 256), 3U);
  EXPECT_EQ(PartsOfSums(Tuning{}, 10, 768, 256), 1U);  // a device that one workgroup keeps busy
}

}  // namespace
}  // namespace rullama::gpu

#include "backends/gpu/product_tiles.h"

#include <gtest/gtest.h>

#include <utility>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

Target LargeGpu() {
  Target target;  // an H200
  target.can.multiprocessors = 132;
  target.prefers.few_groups = 4 * target.can.multiprocessors;
  return target;
}

TEST(DivisionOf, TakesLargeTilesWhereTheyFillADevice) {
  struct {
    CoopShape shape;
    uint32_t tile_rows, tile_columns, threads;
    uint64_t parts;
  } constexpr kCases[] = {
      {{2048, 12288, 24, 1}, 128, 128, 128, 1},  // gate and up of E2B: six turns of 264 tiles
      {{512, 12288, 24, 1}, 128, 128, 256, 1},   // 384 tiles are three turns of 132
      {{128, 12288, 24, 1}, 64, 64, 128, 1},     // 384 small ones a turn
      {{70, 12740, 4, 1}, 128, 128, 256, 1},     // two cases of conformance
      {{193, 12740, 4, 1}, 128, 128, 128, 1},    //
      {{2048, 1536, 4, 1}, 64, 64, 128, 1},      // per-layer projections: only four steps
      {{2048, 256, 24, 6}, 64, 64, 128, 1},      // 128 tiles, one for each multiprocessor
      {{128, 256, 24, 6}, 64, 64, 128, 6},       // eight tiles: the terms are shared
      {{512, 3840, 240, 60}, 128, 128, 128, 2},  // down of 12B
  };
  for (const auto& c : kCases) {
    const CoopDivision division = DivisionOf(LargeGpu(), c.shape);
    EXPECT_EQ(division.tile.rows, c.tile_rows) << c.shape.rows << " x " << c.shape.columns;
    EXPECT_EQ(division.tile.columns, c.tile_columns) << c.shape.rows << " x " << c.shape.columns;
    EXPECT_EQ(division.tile.threads(), c.threads) << c.shape.rows << " x " << c.shape.columns;
    EXPECT_EQ(division.parts, c.parts) << c.shape.rows << " x " << c.shape.columns;
  }
}

TEST(DivisionOf, TakesTheLowestTileOfFewRows) {
  EXPECT_EQ(DivisionOf(LargeGpu(), {17, 2048, 24, 6}).tile.rows, 32U);
  EXPECT_EQ(DivisionOf(LargeGpu(), {32, 262144, 24, 1}).tile.rows, 32U);
  EXPECT_EQ(DivisionOf(LargeGpu(), {33, 262144, 24, 1}).tile.rows, 64U);
  EXPECT_EQ(DivisionOf(LargeGpu(), {17, 1536, 24, 6}).parts, 6U);   // 24 tiles
  EXPECT_EQ(DivisionOf(LargeGpu(), {17, 12288, 24, 6}).parts, 2U);  // 192 tiles
}

TEST(F32TileRows, HoldTheRowsIfTheyCan) {
  for (const auto& [rows, tile] :
       {std::pair{0, 16}, {9, 16}, {16, 16}, {17, 32}, {32, 32}, {33, 64}, {64, 64}, {2048, 64}}) {
    EXPECT_EQ(F32TileRows(static_cast<uint64_t>(rows)), static_cast<uint32_t>(tile)) << rows;
  }
}

// Large tiles read less for each result; small ones leave fewer multiprocessors idle.
TEST(WarpgroupDivisionOf, TakesLargeTilesWhereTheyFillADevice) {
  struct {
    CoopShape shape;
    CoopTile tile;
    uint64_t parts;
  } constexpr kCases[] = {
      {{2048, 12288, 12, 1}, kLargeWarpgroupTile, 1},  // gate and up of E2B: 768 tiles
      {{512, 12288, 12, 1}, kSmallWarpgroupTile, 1},   // three turns of 132 for 384 tiles
      {{2048, 43008, 42, 1}, kLargeWarpgroupTile, 1},  // of 31B
      {{512, 1536, 48, 24}, kLargeWarpgroupTile, 5},   // down of E2B: 120 workgroups
      {{128, 256, 12, 6}, kSmallWarpgroupTile, 6},
  };
  for (const auto& c : kCases) {
    const CoopDivision division = WarpgroupDivisionOf(LargeGpu(), c.shape);
    EXPECT_EQ(division.tile, c.tile) << c.shape.rows << " x " << c.shape.columns;
    EXPECT_EQ(division.parts, c.parts) << c.shape.rows << " x " << c.shape.columns;
  }
}

// No part is without a step, and no more workgroups share the terms than may.
TEST(DivisionOf, GivesEveryPartSteps) {
  for (const uint64_t rows : {17, 40, 65, 300, 2048}) {
    for (uint64_t steps = 1; steps < 60; ++steps) {
      const uint64_t max_parts = CeilDiv(steps, 4);
      const uint64_t parts = DivisionOf(LargeGpu(), {rows, 256, steps, max_parts}).parts;
      EXPECT_LE(parts, max_parts);
      EXPECT_LT((parts - 1) * CeilDiv(steps, parts), steps) << rows << " rows, " << steps;
    }
  }
}

TEST(DivisionOf, SharesNoTermsOnOneMultiprocessor) {
  EXPECT_EQ(DivisionOf(Target{}, {512, 1536, 96, 24}).parts, 1U);
}

TEST(ExpertTileOf, GrowsWithTheRowsOfAnAverageExpert) {
  struct {
    uint64_t pairs, experts;
    uint32_t tile_rows;
  } constexpr kCases[] = {
      {9 * 8, 128, 32},     // the fewest rows that experts of 26B-A4B multiply in tiles
      {256 * 8, 128, 32},   // a canvas
      {257 * 8, 128, 64},   //
      {1024 * 8, 128, 64},  // prompts
      {1536 * 8, 128, 128}, {2048 * 8, 128, 128}, {0, 128, 32},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(ExpertTileOf(c.pairs, c.experts).rows, c.tile_rows) << c.pairs;
  }
}

// Whichever tile is chosen, a subgroup has whole matrices and of gated products both halves, and
// the invocations load the same number of vectors each.
TEST(ExpertTileOf, DividesEvenlyAmongInvocations) {
  constexpr uint32_t kTermsOfVector = 8;
  for (const uint64_t rows : {16, 64, 128}) {
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
  EXPECT_EQ(PartsOfSums(Target{}, 10, 768, 256), 1U);  // a device that one workgroup keeps busy
}

}  // namespace
}  // namespace rullama::gpu

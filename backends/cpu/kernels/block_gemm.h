// GEMM driver for block types. For each block of Tile::kRows weight rows, the panels are unpacked
// once and then multiplied with tiles of batch rows. A tile of the batch stays in L1 while the
// panels of the block stream from L2, so activations are read once per block even when they exceed
// L2.
//
// Sums are float32, in an order that the tile decides and that is independent of other weight rows
// and batch rows.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/kernels/scratch.h"
#include "backends/cpu/kernels/weight_panel.h"

namespace rullama::cpu {
namespace {

// Operands of one register tile.
struct TileArgs {
  const uint8_t* x;  // first batch row
  size_t x_stride;   // bytes between batch rows
  size_t k;          // elements of a batch row
  Depth depth;       // range of k to add
  float* sums;       // first batch row, row 0 of the first panel; kRows floats between batch rows
  ReadAhead* ahead;
  size_t fetch;  // cache lines to prefetch
};

template <typename Tile>
struct GemmScratch {
  alignas(64) typename Tile::Panel panels[Tile::kRows / kLanes];
  float sums[kBatchBlock][Tile::kRows];
};

// Batch rows [first, first + count), at most kBatchBlock.
struct BatchRange {
  size_t first, count;
};

// sums (+)= the product of `panels` panels with the batch rows; `+` unless depth begins at 0.
template <typename Tile>
void MultiplyPanels(const MatMulArgs& args, const BatchRange& range, const Depth& depth,
                    size_t panels, size_t fetch, Tile& product, GemmScratch<Tile>& scratch,
                    ReadAhead& ahead) {
  // Tiles of nearly equal size, because a small one has too few independent sums to hide latency.
  const size_t tiles = (range.count + Tile::kMaxBatch - 1) / Tile::kMaxBatch;
  const size_t visits = tiles * (panels / Tile::kPanels);
  for (size_t tile = 0; tile < tiles; ++tile) {
    const size_t first = range.count * tile / tiles;
    const size_t batch = range.count * (tile + 1) / tiles - first;
    for (size_t panel = 0; panel < panels; panel += Tile::kPanels) {
      product.Run(batch, &scratch.panels[panel],
                  {.x = static_cast<const uint8_t*>(args.x) + (range.first + first) * args.x_stride,
                   .x_stride = args.x_stride,
                   .k = args.k,
                   .depth = depth,
                   .sums = scratch.sums[first] + panel * kLanes,
                   .ahead = &ahead,
                   .fetch = fetch / visits + 1});
    }
  }
}

// Weight rows [n, n_end), at most Tile::kRows.
template <typename Tile>
void MultiplyBlock(const MatMulArgs& args, const BatchRange& range, size_t n, size_t n_end,
                   Tile& product, GemmScratch<Tile>& scratch) {
  const auto* weights = static_cast<const uint8_t*>(args.weights);
  const size_t next_end = n_end + Tile::kRows < args.n_end ? n_end + Tile::kRows : args.n_end;
  ReadAhead ahead{weights + n_end * args.row_bytes, weights + next_end * args.row_bytes};
  const size_t rows = n_end - n;
  // Tiles take kPanels panels at a time; rows past the last one repeat it.
  constexpr size_t kRowsAtATime = Tile::kPanels * kLanes;
  const size_t panels = (rows + kRowsAtATime - 1) / kRowsAtATime * Tile::kPanels;
  // Half of the next block's cache lines for this depth; unpacking fetches the other half.
  const size_t lines = Tile::kRows * args.row_bytes / args.k * Tile::kDepth / 64 / 2;
  for (size_t k = 0; k < args.k; k += Tile::kDepth) {
    const Depth depth{k, args.k - k < Tile::kDepth ? args.k : k + Tile::kDepth};
    for (size_t p = 0; p < panels; ++p) {
      Tile::Fill(args, n + p * kLanes, depth, ahead, scratch.panels[p]);
    }
    MultiplyPanels(args, range, depth, panels, lines, product, scratch, ahead);
  }
  for (size_t m = 0; m < range.count; ++m) {
    std::memcpy(args.y + (range.first + m) * args.y_stride + n, scratch.sums[m],
                rows * sizeof(float));
  }
}

// Tile: the register tile of a level. It defines Panel (sixteen weight rows by kDepth elements),
// Fill() to unpack one, kRows, the weight rows unpacked at a time, and Run() to add the product of
// kPanels panels with up to kMaxBatch batch rows to the sums.
template <typename Tile>
void Gemm(const MatMulArgs& args) {
  auto& scratch = *reinterpret_cast<GemmScratch<Tile>*>(AlignUp(args.scratch));
  Tile product;
  for (size_t first = 0; first < args.batch; first += kBatchBlock) {
    const size_t left = args.batch - first;
    const BatchRange range{first, left < kBatchBlock ? left : kBatchBlock};
    for (size_t n = args.n_begin; n < args.n_end; n += Tile::kRows) {
      const size_t n_end = n + Tile::kRows < args.n_end ? n + Tile::kRows : args.n_end;
      MultiplyBlock(args, range, n, n_end, product, scratch);
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

// Products of quantised rows with many columns: panels of a block of weights are unpacked once,
// then tiles of columns pass over them. A tile's columns stay in L1 for all rows of the block,
// whose panels come from L2; so columns, which may be more than L2 holds, are read once for every
// block.
//
// Sums are float32, in rising order of k. A sum never sees other rows or columns, so the result
// depends on neither. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/weight_panel.h"

namespace rullama::cpu {
namespace {

// What a tile of a product reads and writes.
struct TileArgs {
  const uint8_t* x;  // column 0
  size_t x_stride;   // bytes between columns
  size_t k;          // elements of a column
  Depth depth;       // which of them
  float* sums;       // column 0, row 0 of the first panel; kBlockRows floats between columns
  ReadAhead* ahead;
  size_t fetch;  // lines to fetch
};

template <typename Tile>
struct GemmScratch {
  alignas(64) typename Tile::Panel panels[kBlockRows / kLanes];
  float sums[kColumnBlock][kBlockRows];
};

struct ColumnBlock {
  size_t first, count;
};

// sums (+)= `panels` panels x columns.
template <typename Tile>
void PanelsTimesColumns(const MatMulArgs& args, const ColumnBlock& block, const Depth& depth,
                        size_t panels, size_t fetch, Tile& product, GemmScratch<Tile>& scratch,
                        ReadAhead& ahead) {
  // Tiles of nearly equal width: a narrow one has too few independent sums to keep the units busy.
  const size_t tiles = (block.count + Tile::kColumns - 1) / Tile::kColumns;
  const size_t visits = tiles * (panels / Tile::kPanels);
  for (size_t tile = 0; tile < tiles; ++tile) {
    const size_t column = block.count * tile / tiles;
    const size_t columns = block.count * (tile + 1) / tiles - column;
    for (size_t panel = 0; panel < panels; panel += Tile::kPanels) {
      product.Run(
          columns, &scratch.panels[panel],
          {.x = static_cast<const uint8_t*>(args.x) + (block.first + column) * args.x_stride,
           .x_stride = args.x_stride,
           .k = args.k,
           .depth = depth,
           .sums = scratch.sums[column] + panel * kLanes,
           .ahead = &ahead,
           .fetch = fetch / visits + 1});
    }
  }
}

// Rows [n, n_end), at most kBlockRows.
template <typename Tile>
void BlockTimesColumns(const MatMulArgs& args, const ColumnBlock& block, size_t n, size_t n_end,
                       Tile& product, GemmScratch<Tile>& scratch) {
  const auto* weights = static_cast<const uint8_t*>(args.weights);
  const size_t next_end = n_end + kBlockRows < args.n_end ? n_end + kBlockRows : args.n_end;
  ReadAhead ahead{weights + n_end * args.row_bytes, weights + next_end * args.row_bytes};
  const size_t rows = n_end - n;
  // Whole groups of panels: rows beyond the last repeat it.
  constexpr size_t kRowsAtATime = Tile::kPanels * kLanes;
  const size_t panels = (rows + kRowsAtATime - 1) / kRowsAtATime * Tile::kPanels;
  // Half of the next block's lines for this part of k; unpacking fetches the rest.
  const size_t lines = kBlockRows * args.row_bytes / args.k * Tile::kDepth / 64 / 2;
  for (size_t k = 0; k < args.k; k += Tile::kDepth) {
    const Depth depth{k, args.k - k < Tile::kDepth ? args.k : k + Tile::kDepth};
    for (size_t p = 0; p < panels; ++p) {
      Tile::Fill(args, n + p * kLanes, depth, ahead, scratch.panels[p]);
    }
    PanelsTimesColumns(args, block, depth, panels, lines, product, scratch, ahead);
  }
  for (size_t c = 0; c < block.count; ++c) {
    std::memcpy(args.y + (block.first + c) * args.y_stride + n, scratch.sums[c],
                rows * sizeof(float));
  }
}

// A Tile has: Panel, of sixteen rows and kDepth elements; Fill(), which unpacks one; Run(), which
// adds kPanels of them times up to kColumns columns to sums.
template <typename Tile>
void Gemm(const MatMulArgs& args) {
  auto& scratch = *reinterpret_cast<GemmScratch<Tile>*>(AlignUp(args.scratch));
  Tile product;
  for (size_t first = 0; first < args.columns; first += kColumnBlock) {
    const size_t left = args.columns - first;
    const ColumnBlock block{first, left < kColumnBlock ? left : kColumnBlock};
    for (size_t n = args.n_begin; n < args.n_end; n += kBlockRows) {
      const size_t n_end = n + kBlockRows < args.n_end ? n + kBlockRows : args.n_end;
      BlockTimesColumns(args, block, n, n_end, product, scratch);
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

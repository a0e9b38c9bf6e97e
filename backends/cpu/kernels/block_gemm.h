// Products of quantised rows with many columns.
//
// For 32 rows and 512 elements of k, weights are unpacked once into a panel that stays in L1: byte
// codes interleaved so that one vector holds four consecutive elements of sixteen rows, and the
// scale and offset of every sixteen elements, sixteen rows to a vector. A register tile then runs
// over all columns; a lane belongs to one row, so nothing is folded at the end.
//
// Per row and column: exact int32 sums of 32 (or 16) products, scaled and added in float32 in
// rising order of k. A lane never sees other rows or columns, so the result depends on neither.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/activations.h"
#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kSubPanels = kPanelRows / kLanes;
constexpr size_t kSubPanelBytes = kPanelDepth * kLanes;
constexpr size_t kSubPanelScales = kPanelDepth / 16 * kLanes;

struct Panel {
  uint8_t codes[kSubPanels][kSubPanelBytes];  // [k / 4][row][k % 4]
  float scale[kSubPanels][kSubPanelScales];   // [k / 16][row]
  float offset[kSubPanels][kSubPanelScales];
};

struct GemmScratch {
  Panel panel;
  float sums[kColumnBlock][kPanelRows];
};

// Sixteen short streams are more than the hardware follows, and a burst of requests stalls, so the
// next panel is fetched in the order of memory, a few lines at a time, all the while this one is
// unpacked and used.
struct ReadAhead {
  const uint8_t* next;
  const uint8_t* end;
  RL_INLINE void Fetch(size_t lines) {
    for (; lines > 0 && next < end; --lines, next += 64) PrefetchFar(next);
  }
};

// --- Unpacking -----------------------------------------------------------------------------------
template <DType T, int kPiece>
RL_INLINE void UnpackPiece(const uint8_t* const chunks[kLanes], ReadAhead& ahead, uint8_t* out) {
  // Half of what four pieces read; the register tiles fetch the rest.
  ahead.Fetch(kLanes * kChunkBytes<T> / 64 / 8 + 1);
  U8x64 codes[kLanes];
  for (size_t r = 0; r < kLanes; ++r) codes[r] = Decoder<T>::template Codes<kPiece>(chunks[r]);
  StoreTransposed(codes, out + kPiece * 64 * kLanes, 4 * kLanes);
}

// Unpacks chunk `slot` of a panel for sixteen rows.
template <DType T>
void UnpackChunk(const uint8_t* const chunks[kLanes], size_t slot, ReadAhead& ahead, uint8_t* codes,
                 float* scale, float* offset) {
  U8x64 scales[kLanes], offsets[kLanes];
  for (size_t r = 0; r < kLanes; ++r) {
    const ScalePair pair = Decoder<T>::Scales(chunks[r]);
    scales[r] = AsBytes(pair.scale);
    offsets[r] = AsBytes(pair.offset);
  }
  const size_t first_scale = slot * (kChunk / 16) * kLanes;
  StoreTransposed(scales, reinterpret_cast<uint8_t*>(scale + first_scale), 4 * kLanes);
  StoreTransposed(offsets, reinterpret_cast<uint8_t*>(offset + first_scale), 4 * kLanes);
  uint8_t* out = codes + slot * kChunk * kLanes;
  UnpackPiece<T, 0>(chunks, ahead, out);
  UnpackPiece<T, 1>(chunks, ahead, out);
  UnpackPiece<T, 2>(chunks, ahead, out);
  UnpackPiece<T, 3>(chunks, ahead, out);
}

// Unpacks elements [k_begin, k_end) of rows [n, n + 16); rows from n_end on repeat the last one.
template <DType T>
void UnpackSubPanel(const MatMulArgs& args, size_t n, size_t k_begin, size_t k_end,
                    ReadAhead& ahead, uint8_t* codes, float* scale, float* offset) {
  const uint8_t* chunks[kLanes];
  for (size_t r = 0; r < kLanes; ++r) {
    const size_t row = n + r < args.n_end ? n + r : args.n_end - 1;
    chunks[r] = static_cast<const uint8_t*>(args.weights) + row * args.row_bytes +
                k_begin / kChunk * kChunkBytes<T>;
  }
  size_t slot = 0;
  for (size_t k = k_begin; k + kChunk <= k_end; k += kChunk, ++slot) {
    UnpackChunk<T>(chunks, slot, ahead, codes, scale, offset);
    for (const uint8_t*& chunk : chunks) chunk += kChunkBytes<T>;
  }
  if constexpr (kBlockElements<T> < kChunk) {
    const size_t rest = (k_end - k_begin) % kChunk;
    if (rest == 0) return;
    uint8_t padded[kLanes][kChunkBytes<T>] = {};
    for (size_t r = 0; r < kLanes; ++r) {
      std::memcpy(padded[r], chunks[r], rest / kBlockElements<T> * Decoder<T>::kBlockBytes);
      chunks[r] = padded[r];
    }
    UnpackChunk<T>(chunks, slot, ahead, codes, scale, offset);
  }
}

// --- Register tile -------------------------------------------------------------------------------
struct TileArgs {
  const Panel* panel;
  size_t sub_panel;     // first of kTilePanels
  size_t depth;         // elements of k, a multiple of 32
  const int8_t* codes;  // column 0, at the panel's first k
  const float* scale;   // same position
  const float* sum32;
  const float* sum16;
  size_t x_stride;  // bytes between columns, for all four
  float* sums;      // column 0, row 0 of the sub-panel; kPanelRows floats between columns
  bool first;       // start from zero
  ReadAhead* ahead;
  size_t fetch;  // lines to fetch per 32 elements of k
};

RL_INLINE const float* AtColumn(const float* p, size_t stride, size_t column) {
  return reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(p) + column * stride);
}

// Adds the products of elements [k, k + kGroup) to acc.
template <int kGroup, bool kWide, bool kOffset, int kColumns>
RL_INLINE void AddGroup(const TileArgs& tile, size_t k, F32x16 (&acc)[kTilePanels][kColumns]) {
  I32x16 dot[kTilePanels][kColumns];
  for (int p = 0; p < kTilePanels; ++p) {
    for (int c = 0; c < kColumns; ++c) dot[p][c] = ZeroInt();
  }
#pragma GCC unroll 8
  for (int step = 0; step < kGroup / 4; ++step) {
    const size_t at = k + 4 * static_cast<size_t>(step);
    U8x64 codes[kTilePanels];
    for (int p = 0; p < kTilePanels; ++p) {
      codes[p] = LoadBytes(tile.panel->codes[tile.sub_panel + p] + at * kLanes);
    }
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      for (int p = 0; p < kTilePanels; ++p) {
        dot[p][c] = DotBroadcast<kWide>(dot[p][c], codes[p], tile.codes + c * tile.x_stride + at);
      }
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kTilePanels; ++p) {
    const F32x16 scale = Load(tile.panel->scale[tile.sub_panel + p] + k);
    const F32x16 offset = Load(tile.panel->offset[tile.sub_panel + p] + k);
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const F32x16 both = Mul(scale, Set1(AtColumn(tile.scale, tile.x_stride, c)[k / 32]));
      acc[p][c] = Fma(ToFloat(dot[p][c]), both, acc[p][c]);
      if constexpr (kOffset) {
        const float* sum = kGroup == 32 ? AtColumn(tile.sum32, tile.x_stride, c) + k / 32
                                        : AtColumn(tile.sum16, tile.x_stride, c) + k / 16;
        acc[p][c] = Fma(offset, Set1(*sum), acc[p][c]);
      }
    }
  }
}

template <int kGroup, bool kWide, bool kOffset, int kColumns>
void RunTile(const TileArgs& tile) {
  F32x16 acc[kTilePanels][kColumns];
  for (int p = 0; p < kTilePanels; ++p) {
    for (int c = 0; c < kColumns; ++c) {
      acc[p][c] = tile.first ? Zero() : Load(tile.sums + c * kPanelRows + p * kLanes);
    }
  }
  for (size_t k = 0; k < tile.depth; k += 32) {
    tile.ahead->Fetch(tile.fetch);
    AddGroup<kGroup, kWide, kOffset, kColumns>(tile, k, acc);
    if constexpr (kGroup == 16) AddGroup<kGroup, kWide, kOffset, kColumns>(tile, k + 16, acc);
  }
  for (int p = 0; p < kTilePanels; ++p) {
    for (int c = 0; c < kColumns; ++c) Store(tile.sums + c * kPanelRows + p * kLanes, acc[p][c]);
  }
}

template <int kGroup, bool kWide, bool kOffset, int kColumns = kTileColumns>
RL_INLINE void RunTileOf(int columns, const TileArgs& tile) {
  if constexpr (kColumns > 0) {
    if (columns == kColumns) return RunTile<kGroup, kWide, kOffset, kColumns>(tile);
    RunTileOf<kGroup, kWide, kOffset, kColumns - 1>(columns, tile);
  }
}

// --- Loops ---------------------------------------------------------------------------------------
struct ColumnBlock {
  const uint8_t* x;
  size_t count;
};

// sums (+)= panel x columns for elements [k_begin, k_end).
template <DType T>
void PanelTimesColumns(const MatMulArgs& args, const ColumnBlock& block, size_t k_begin,
                       size_t k_end, GemmScratch& scratch, ReadAhead& ahead) {
  using D = Decoder<T>;
  constexpr bool kOffset = D::kHasMin || D::kZero != 0;
  constexpr size_t kTilesPerColumns = kSubPanels / kTilePanels;
  // Tiles of nearly equal width: a narrow one has too few independent sums to keep the units busy.
  const size_t tiles = (block.count + kTileColumns - 1) / kTileColumns;
  // The panel holds 32 rows of 32 elements per step and tiles * kTilesPerColumns visits to it.
  constexpr size_t kStepLines = kPanelRows * kChunkBytes<T> / (kChunk / 32) / 64 / 2 + 1;
  const size_t fetch = kStepLines / (tiles * kTilesPerColumns) + 1;
  for (size_t tile_index = 0; tile_index < tiles; ++tile_index) {
    const size_t column = block.count * tile_index / tiles;
    const size_t columns = block.count * (tile_index + 1) / tiles - column;
    const QuantizedRow row = ViewRow(block.x + column * args.x_stride, args.k);
    for (size_t sub_panel = 0; sub_panel < kSubPanels; sub_panel += kTilePanels) {
      const TileArgs tile{.panel = &scratch.panel,
                          .sub_panel = sub_panel,
                          .depth = k_end - k_begin,
                          .codes = row.codes + k_begin,
                          .scale = row.scale + k_begin / 32,
                          .sum32 = row.sum32 + k_begin / 32,
                          .sum16 = row.sum16 + k_begin / 16,
                          .x_stride = args.x_stride,
                          .sums = scratch.sums[column] + sub_panel * kLanes,
                          .first = k_begin == 0,
                          .ahead = &ahead,
                          .fetch = fetch};
      RunTileOf<D::kGroup, D::kWide, kOffset>(static_cast<int>(columns), tile);
    }
  }
}

template <DType T>
void BlockGemm(const MatMulArgs& args) {
  auto& scratch = *reinterpret_cast<GemmScratch*>(AlignUp(args.scratch));
  for (size_t first = 0; first < args.columns; first += kColumnBlock) {
    const size_t left = args.columns - first;
    const ColumnBlock block{static_cast<const uint8_t*>(args.x) + first * args.x_stride,
                            left < kColumnBlock ? left : kColumnBlock};
    for (size_t n = args.n_begin; n < args.n_end; n += kPanelRows) {
      const size_t next = n + kPanelRows < args.n_end ? n + kPanelRows : args.n_end;
      const size_t next_end = next + kPanelRows < args.n_end ? next + kPanelRows : args.n_end;
      const auto* weights = static_cast<const uint8_t*>(args.weights);
      ReadAhead ahead{weights + next * args.row_bytes, weights + next_end * args.row_bytes};
      for (size_t k = 0; k < args.k; k += kPanelDepth) {
        const size_t k_end = args.k - k < kPanelDepth ? args.k : k + kPanelDepth;
        for (size_t s = 0; s < kSubPanels; ++s) {
          UnpackSubPanel<T>(args, n + s * kLanes, k, k_end, ahead, scratch.panel.codes[s],
                            scratch.panel.scale[s], scratch.panel.offset[s]);
        }
        PanelTimesColumns<T>(args, block, k, k_end, scratch, ahead);
      }
      const size_t rows = args.n_end - n < kPanelRows ? args.n_end - n : kPanelRows;
      for (size_t c = 0; c < block.count; ++c) {
        std::memcpy(args.y + (first + c) * args.y_stride + n, scratch.sums[c],
                    rows * sizeof(float));
      }
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

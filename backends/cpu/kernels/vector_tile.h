// Products of weight panels with a few columns in vector registers, by dot products of four bytes.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/activations.h"
#include "backends/cpu/kernels/block_gemm.h"
#include "backends/cpu/kernels/packed_rows.h"

namespace rullama::cpu {
namespace {

template <typename T>
RL_INLINE const T* AtColumn(const T* p, size_t stride, size_t column) {
  return reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(p) + column * stride);
}

// A tile's view of columns and panels.
struct VectorOperands {
  const CodePanel<kPanelDepth>* panels;
  QuantizedRow x;   // column 0, at the panels' first element
  size_t x_stride;  // bytes between columns, the same for all parts of a row
  int zero;         // the code of weight 0, without minima
};

// dot += the products of elements [k, k + kGroup) with one byte of each code.
template <int kGroup, bool kWide, int kColumns>
RL_INLINE void AddDots(const VectorOperands& tile, const int8_t* x, size_t k,
                       I32x16 (&dot)[kTilePanels][kColumns]) {
#pragma GCC unroll 8
  for (int step = 0; step < kGroup / 4; ++step) {
    const size_t at = k + 4 * static_cast<size_t>(step);
    U8x64 codes[kTilePanels];
    for (int p = 0; p < kTilePanels; ++p) {
      codes[p] = LoadBytes(tile.panels[p].codes + at * kLanes);
    }
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      for (int p = 0; p < kTilePanels; ++p) {
        dot[p][c] = DotBroadcast<kWide>(dot[p][c], codes[p], x + c * tile.x_stride + at);
      }
    }
  }
}

// Of elements [k, k + kGroup) of a column, with their scale.
template <int kGroup>
RL_INLINE float SumOfGroup(const VectorOperands& tile, size_t k, size_t column) {
  if constexpr (kGroup == 32) return AtColumn(tile.x.sum32, tile.x_stride, column)[k / 32];
  const int32_t codes = AtColumn(tile.x.codes16, tile.x_stride, column)[k / 16];
  return AtColumn(tile.x.scale, tile.x_stride, column)[k / 32] * static_cast<float>(codes);
}

// Adds the products of elements [k, k + kGroup) to acc.
//
// Without minima codes are moved to around zero in integers: exactly, and away from the units that
// multiply.
template <int kGroup, bool kWide, bool kHasMin, int kPlanes, int kColumns>
RL_INLINE void AddGroup(const VectorOperands& tile, size_t k,
                        F32x16 (&acc)[kTilePanels][kColumns]) {
  I32x16 dot[kTilePanels][kColumns];
  for (int p = 0; p < kTilePanels; ++p) {
    for (int c = 0; c < kColumns; ++c) dot[p][c] = ZeroInt();
  }
  AddDots<kGroup, kWide>(tile, tile.x.high, k, dot);
  if constexpr (kPlanes == 2) {
    for (int p = 0; p < kTilePanels; ++p) {
      for (int c = 0; c < kColumns; ++c) dot[p][c] = Times256(dot[p][c]);
    }
    AddDots<kGroup, kWide>(tile, tile.x.low, k, dot);
  }
  if constexpr (!kHasMin && !(kWide && kWideCodesAreSigned)) {
    const int32_t* codes = kGroup == 32 ? tile.x.codes32 + k / 32 : tile.x.codes16 + k / 16;
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const I32x16 moved = Set1Int(-tile.zero * *AtColumn(codes, tile.x_stride, c));
      for (int p = 0; p < kTilePanels; ++p) dot[p][c] = AddInt(dot[p][c], moved);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kTilePanels; ++p) {
    const F32x16 scale = Load(tile.panels[p].scale + k);
    const F32x16 offset = Load(tile.panels[p].offset + k);
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const float x_scale = AtColumn(tile.x.scale, tile.x_stride, c)[k / 32];
      acc[p][c] = Fma(ToFloat(dot[p][c]), Mul(scale, Set1(x_scale)), acc[p][c]);
      if constexpr (kHasMin) {
        const float sum = SumOfGroup<kGroup>(tile, k, static_cast<size_t>(c));
        acc[p][c] = Fma(offset, Set1(sum), acc[p][c]);
      }
    }
  }
}

template <int kGroup, bool kWide, bool kHasMin, int kPlanes, int kColumns>
void RunTile(const TileArgs& args, const VectorOperands& tile) {
  F32x16 acc[kTilePanels][kColumns];
  for (int p = 0; p < kTilePanels; ++p) {
    for (int c = 0; c < kColumns; ++c) {
      acc[p][c] = args.depth.begin == 0 ? Zero() : Load(args.sums + c * kBlockRows + p * kLanes);
    }
  }
  const size_t depth = args.depth.end - args.depth.begin;
  const size_t fetch = args.fetch * 32 / kPanelDepth + 1;
  for (size_t k = 0; k < depth; k += 32) {
    args.ahead->Fetch(fetch);
    AddGroup<kGroup, kWide, kHasMin, kPlanes, kColumns>(tile, k, acc);
    if constexpr (kGroup == 16) {
      AddGroup<kGroup, kWide, kHasMin, kPlanes, kColumns>(tile, k + 16, acc);
    }
  }
  for (int p = 0; p < kTilePanels; ++p) {
    for (int c = 0; c < kColumns; ++c) Store(args.sums + c * kBlockRows + p * kLanes, acc[p][c]);
  }
}

template <int kGroup, bool kWide, bool kHasMin, int kPlanes, int kColumns = kTileColumns>
RL_INLINE void RunTileOf(size_t columns, const TileArgs& args, const VectorOperands& tile) {
  if constexpr (kColumns > 0) {
    if (columns == kColumns) return RunTile<kGroup, kWide, kHasMin, kPlanes, kColumns>(args, tile);
    RunTileOf<kGroup, kWide, kHasMin, kPlanes, kColumns - 1>(columns, args, tile);
  }
}

// Tiles of products with weights of type T and columns of kPlanes bytes per element.
template <DType T, int kPlanes>
class VectorTile {
 public:
  using Panel = CodePanel<kPanelDepth>;  // of sixteen rows
  static constexpr size_t kDepth = kPanelDepth;
  static constexpr size_t kColumns = kTileColumns;  // most at a time
  static constexpr size_t kPanels = kTilePanels;    // at a time

  static void Fill(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
                   Panel& panel) {
    FillPanel<T>(args, n, depth, ahead, panel);
  }

  RL_INLINE void Run(size_t columns, const Panel* panels, const TileArgs& args) {
    const QuantizedRow row = ViewRow(args.x, args.k, kPlanes);
    using D = Decoder<T>;
    const VectorOperands tile{panels, From(row, args.depth.begin), args.x_stride, D::kZero};
    RunTileOf<D::kGroup, D::kWide, D::kHasMin, kPlanes>(columns, args, tile);
  }
};

template <DType T>
void BlockGemm(const MatMulArgs& args) {
  args.planes == 1 ? Gemm<VectorTile<T, 1>>(args) : Gemm<VectorTile<T, 2>>(args);
}

}  // namespace
}  // namespace rullama::cpu

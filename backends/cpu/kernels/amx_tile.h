// Products of weight panels with up to 32 columns on Intel AMX's matrix unit, in bf16. Weights and
// activations are each the sum of two bf16 numbers, high and low; of the four products of a weight
// and an activation that of both low parts is left out. So a factor keeps 16 bits and more, and
// sums stay in tile registers, in float32, for the whole depth of a panel: there is nothing to
// scale in between, which for codes with scales of their own takes longer than the products.
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/bfloat_rows.h"
#include "backends/cpu/kernels/block_gemm.h"
#include "backends/cpu/kernels/float_matmul.h"
#include "backends/cpu/kernels/packed_rows.h"

namespace rullama::cpu {
namespace {

// Sixteen rows: pairs of elements side by side, as the matrix unit takes its second operand.
struct BfloatPanel {
  static constexpr size_t kDepth = 256;
  uint16_t high[kDepth * kLanes];  // [k / 2][row][k % 2]
  uint16_t low[kDepth * kLanes];
};

RL_INLINE void StorePairs(const F32x16& even, const F32x16& odd, uint16_t* high, uint16_t* low) {
  const SplitFloats a = SplitBfloat(even), b = SplitBfloat(odd);
  StoreBytes(reinterpret_cast<uint8_t*>(high), InterleaveUpperHalves(a.high, b.high));
  StoreBytes(reinterpret_cast<uint8_t*>(low), InterleaveUpperHalves(a.low, b.low));
}

void SplitPanel(const CodePanel<BfloatPanel::kDepth>& codes, BfloatPanel& panel) {
  for (size_t group = 0; group < BfloatPanel::kDepth; group += 16) {
    const F32x16 scale = Load(codes.scale + group);
    const F32x16 offset = Load(codes.offset + group);
#pragma GCC unroll 4
    for (size_t k = group; k < group + 16; k += 4) {
      const U8x64 four = LoadBytes(codes.codes + k * kLanes);
      uint16_t* high = panel.high + k * kLanes;
      uint16_t* low = panel.low + k * kLanes;
      StorePairs(Fma(ByteOfLane<0>(four), scale, offset), Fma(ByteOfLane<1>(four), scale, offset),
                 high, low);
      StorePairs(Fma(ByteOfLane<2>(four), scale, offset), Fma(ByteOfLane<3>(four), scale, offset),
                 high + 2 * kLanes, low + 2 * kLanes);
    }
  }
}

// A panel of rows [n, n + 16) of F16 or BF16, which two bf16 numbers hold exactly but for numbers
// far below one; rows from n_end on repeat the last one.
template <DType T>
void SplitFloatPanel(const MatMulArgs& args, size_t n, const Depth& depth, BfloatPanel& panel) {
  constexpr size_t kElements = 32;  // of a row at a time: one vector of bf16 numbers
  alignas(64) uint16_t high[kElements], low[kElements];
  for (size_t k = depth.begin; k < depth.end; k += kElements) {
    U8x64 high_rows[kLanes], low_rows[kLanes];
    for (size_t r = 0; r < kLanes; ++r) {
      const uint8_t* row = static_cast<const uint8_t*>(args.weights) +
                           (n + r < args.n_end ? n + r : args.n_end - 1) * args.row_bytes;
      for (const size_t i : {size_t{0}, size_t{16}}) {
        const size_t left = k + i < args.k ? args.k - k - i : 0;
        const SplitFloats parts = SplitBfloat(left < 16 ? LoadLastWeights<T>(row, k + i, left)
                                                        : LoadWeights<T>(row, k + i));
        StoreUpperHalves(high + i, parts.high);
        StoreUpperHalves(low + i, parts.low);
      }
      high_rows[r] = LoadBytes(reinterpret_cast<const uint8_t*>(high));
      low_rows[r] = LoadBytes(reinterpret_cast<const uint8_t*>(low));
    }
    const size_t at = (k - depth.begin) * kLanes;
    StoreTransposed(high_rows, reinterpret_cast<uint8_t*>(panel.high + at), 4 * kLanes);
    StoreTransposed(low_rows, reinterpret_cast<uint8_t*>(panel.low + at), 4 * kLanes);
  }
}

// What ldtilecfg reads: rows and bytes per row of each tile register.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles of products with weights of type T. With one plane, the low part of activations is left
// out.
//
// The tile registers, in numbers, which is what GCC's intrinsics take: 0 and 1 are the sums of the
// first sixteen columns with two panels, 2 and 3 those of the others, 4 and 7 columns, 5 and 6
// weights.
template <DType T, int kPlanes>
class AmxTile {
 public:
  using Panel = BfloatPanel;
  static constexpr size_t kDepth = BfloatPanel::kDepth;
  static constexpr size_t kColumns = 32;
  static constexpr size_t kPanels = 2;

  AmxTile() = default;
  AmxTile(const AmxTile&) = delete;
  AmxTile& operator=(const AmxTile&) = delete;
  ~AmxTile() { _tile_release(); }

  static void Fill(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
                   Panel& panel) {
    if constexpr (T == DType::kF16 || T == DType::kBF16) {
      SplitFloatPanel<T>(args, n, depth, panel);
    } else {
      alignas(64) CodePanel<kDepth> codes;
      FillPanel<T>(args, n, depth, ahead, codes);
      SplitPanel(codes, panel);
    }
  }

  void Run(size_t columns, const Panel* panels, const TileArgs& args) {
    if (columns != columns_) Configure(columns);
    args.ahead->Fetch(args.fetch);
    columns > kHalf ? RunColumns<true>(panels, args) : RunColumns<false>(panels, args);
  }

 private:
  static constexpr size_t kHalf = 16;  // columns of one tile register
  static constexpr size_t kStep = 32;  // elements of k of one
  static constexpr long kPanelStride = 4 * kLanes;
  static constexpr long kSumStride = kBlockRows * sizeof(float);

  void Configure(size_t columns) {
    columns_ = columns;
    TileShapes shapes;
    for (const int tile : {0, 1, 2, 3, 4, 5, 6, 7}) {
      shapes.rows[tile] = kHalf;
      shapes.row_bytes[tile] = 64;
    }
    const size_t first = columns < kHalf ? columns : kHalf;
    for (const int tile : {0, 1, 4}) shapes.rows[tile] = static_cast<uint8_t>(first);
    if (columns > kHalf) {
      for (const int tile : {2, 3, 7}) shapes.rows[tile] = static_cast<uint8_t>(columns - kHalf);
    }
    _tile_loadconfig(&shapes);
  }

  // kBoth: more than sixteen columns.
  template <bool kBoth>
  static void RunColumns(const Panel* panels, const TileArgs& args) {
    float* sums = args.sums;
    float* more = args.sums + kHalf * kBlockRows;
    if (args.depth.begin == 0) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    } else {
      _tile_loadd(0, sums, kSumStride);
      _tile_loadd(1, sums + kLanes, kSumStride);
      if constexpr (kBoth) {
        _tile_loadd(2, more, kSumStride);
        _tile_loadd(3, more + kLanes, kSumStride);
      }
    }
    const auto* x = reinterpret_cast<const uint16_t*>(args.x) + args.depth.begin;
    const auto stride = static_cast<long>(args.x_stride);
    const size_t depth = args.depth.end - args.depth.begin;
    for (size_t k = 0; k < depth; k += kStep) {
      AddStep<kBoth>(panels, k, x + k, stride, PaddedLength(args.k));
    }
    _tile_stored(0, sums, kSumStride);
    _tile_stored(1, sums + kLanes, kSumStride);
    if constexpr (kBoth) {
      _tile_stored(2, more, kSumStride);
      _tile_stored(3, more + kLanes, kSumStride);
    }
  }

  // Products of elements [k, k + kStep). Low parts of columns come first, so that the high ones are
  // still there for the low parts of weights.
  template <bool kBoth>
  RL_INLINE static void AddStep(const Panel* panels, size_t k, const uint16_t* x, long stride,
                                size_t low) {
    const uint16_t* second = x + kHalf * static_cast<size_t>(stride) / sizeof(uint16_t);
    _tile_loadd(5, panels[0].high + k * kLanes, kPanelStride);
    _tile_loadd(6, panels[1].high + k * kLanes, kPanelStride);
    if constexpr (kPlanes == 2) {
      _tile_loadd(4, x + low, stride);
      _tile_dpbf16ps(0, 4, 5);
      _tile_dpbf16ps(1, 4, 6);
      if constexpr (kBoth) {
        _tile_loadd(7, second + low, stride);
        _tile_dpbf16ps(2, 7, 5);
        _tile_dpbf16ps(3, 7, 6);
      }
    }
    _tile_loadd(4, x, stride);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 6);
    if constexpr (kBoth) {
      _tile_loadd(7, second, stride);
      _tile_dpbf16ps(2, 7, 5);
      _tile_dpbf16ps(3, 7, 6);
    }
    _tile_loadd(5, panels[0].low + k * kLanes, kPanelStride);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kBoth) _tile_dpbf16ps(2, 7, 5);
    _tile_loadd(6, panels[1].low + k * kLanes, kPanelStride);
    _tile_dpbf16ps(1, 4, 6);
    if constexpr (kBoth) _tile_dpbf16ps(3, 7, 6);
  }

  size_t columns_ = 0;  // what the tile registers are shaped for
};

template <DType T>
void SplitBlockGemm(const MatMulArgs& args) {
  args.planes == 1 ? Gemm<AmxTile<T, 1>>(args) : Gemm<AmxTile<T, 2>>(args);
}

// F16 and BF16 with float columns, which go behind the scratch of the product as bf16 numbers.
template <DType T>
void SplitFloatGemm(const MatMulArgs& args) {
  using Tile = AmxTile<T, 2>;
  const size_t row_bytes = ActivationRowBytes(ActivationForm::kBfloats, args.k, 2);
  uint8_t* rows = AlignUp(args.scratch) + sizeof(GemmScratch<Tile>);
  for (size_t c = 0; c < args.columns; ++c) {
    const auto* x = static_cast<const uint8_t*>(args.x) + c * args.x_stride;
    SplitRow(reinterpret_cast<const float*>(x), args.k, 2, rows + c * row_bytes);
  }
  MatMulArgs split = args;
  split.x = rows;
  split.x_stride = row_bytes;
  Gemm<Tile>(split);
}

}  // namespace
}  // namespace rullama::cpu

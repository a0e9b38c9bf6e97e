// The tile of GEMM on Intel AMX's matrix unit: weight panels times up to 32 batch rows in bf16.
// Weights and activations are sums of bf16 numbers, their parts (split_bf16.h): two of each, or for
// BF16 weights one of the weight and three of the activation. Products of parts that lie below the
// precision of the factors are left out (AddStep). Float32 sums stay in tile registers
// for the whole depth of a panel. Smaller batches are multiplied in integers (amx_byte_tile.h),
// because filling these panels takes long. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/block_gemm.h"
#include "backends/cpu/kernels/float_matmul.h"
#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/kernels/packed_panel.h"
#include "backends/cpu/kernels/split_bf16.h"

namespace rullama::cpu {
namespace {

// Sixteen weight rows, or sixteen columns of a weight as it is stored, with pairs of elements
// adjacent: the layout of the second operand of tdpbf16ps.
struct Bf16Panel {
  static constexpr size_t kDepth = 256;
  static constexpr size_t kPartSize = kDepth * kLanes;
  uint16_t part[2][kPartSize];  // [part][k / 2][row][k % 2]
};

// Stores the two parts of sixteen pairs, `stride` numbers between parts.
RL_INLINE void StorePairs(const F32x16& even, const F32x16& odd, uint16_t* first, size_t stride) {
  const SplitFloats<2> a = SplitBf16<2>(even), b = SplitBf16<2>(odd);
  for (const size_t p : {size_t{0}, size_t{1}}) {
    StoreBytes(reinterpret_cast<uint8_t*>(first + p * stride),
               InterleaveUpperHalves(a.part[p], b.part[p]));
  }
}

void SplitPanel(const QuantPanel<Bf16Panel::kDepth>& unpacked, Bf16Panel& panel) {
  for (size_t group = 0; group < Bf16Panel::kDepth; group += 16) {
    const F32x16 scale = Load(unpacked.scale + group);
    const F32x16 offset = Load(unpacked.offset + group);
#pragma GCC unroll 4
    for (size_t k = group; k < group + 16; k += 4) {
      const U8x64 four = LoadBytes(unpacked.quants + k * kLanes);
      uint16_t* first = panel.part[0] + k * kLanes;
      StorePairs(Fma(ByteOfLane<0>(four), scale, offset), Fma(ByteOfLane<1>(four), scale, offset),
                 first, Bf16Panel::kPartSize);
      StorePairs(Fma(ByteOfLane<2>(four), scale, offset), Fma(ByteOfLane<3>(four), scale, offset),
                 first + 2 * kLanes, Bf16Panel::kPartSize);
    }
  }
}

// Elements [k, k + 32) of sixteen rows as pairs of a panel, `stride` numbers between its parts.
// load(row, i) gives elements i to i + 15 of the 32.
template <int kParts, typename LoadElements>
RL_INLINE void StoreRowPairs(LoadElements load, uint16_t* first, size_t stride) {
  constexpr size_t kRow = 2 * kLanes;
  alignas(64) uint16_t row[kParts][kRow];
  U8x64 rows[kParts][kLanes];
  for (size_t r = 0; r < kLanes; ++r) {
    for (const size_t i : {size_t{0}, kLanes}) StoreSplit<kParts>(load(r, i), row[0] + i, kRow);
    for (int p = 0; p < kParts; ++p) {
      rows[p][r] = LoadBytes(reinterpret_cast<const uint8_t*>(row[p]));
    }
  }
  for (int p = 0; p < kParts; ++p) {
    auto* out = reinterpret_cast<uint8_t*>(first + static_cast<size_t>(p) * stride);
    StoreTransposed(rows[p], out, 4 * kLanes);
  }
}

// The parts of a weight in a panel: a BF16 weight is its only part.
template <DType T>
inline constexpr int kWeightParts = T == DType::kBF16 ? 1 : 2;

// Fills a panel with rows [n, n + 16) of F16 or BF16 weights; rows past n_end repeat the last one.
// Two bf16 numbers represent an F16 number exactly, except for magnitudes far below one.
template <DType T>
void SplitFloatPanel(const MatMulArgs& args, size_t n, const Depth& depth, Bf16Panel& panel) {
  for (size_t k = depth.begin; k < depth.end; k += 2 * kLanes) {
    const size_t at = (k - depth.begin) * kLanes;
    const auto load = [&](size_t r, size_t i) {
      const uint8_t* row = static_cast<const uint8_t*>(args.weights) +
                           (n + r < args.n_end ? n + r : args.n_end - 1) * args.row_bytes;
      const size_t left = k + i < args.k ? args.k - k - i : 0;
      return left < 16 ? LoadLastWeights<T>(row, k + i, left) : LoadWeights<T>(row, k + i);
    };
    StoreRowPairs<kWeightParts<T>>(load, panel.part[0] + at, Bf16Panel::kPartSize);
  }
}

// The operand of ldtilecfg: rows and bytes per row of each tile register.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The tile registers of a product of up to 32 batch rows with two panels (GCC's intrinsics take
// literal numbers):
//   0, 1   sums of the first sixteen batch rows with panels 0 and 1
//   2, 3   sums of the other batch rows with panels 0 and 1
//   4, 7   activations of the first sixteen and of the other batch rows
//   5, 6   weights of panels 0 and 1
class TileRegisters {
 public:
  static constexpr size_t kHalf = 16;  // batch rows per tile register
  static constexpr size_t kMaxBatch = 2 * kHalf;
  static constexpr size_t kPanels = 2;
  static constexpr size_t kStep = 32;  // elements of k per tile register

  TileRegisters() = default;
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
  ~TileRegisters() { _tile_release(); }

  void Configure(size_t batch) {
    if (batch == batch_) return;
    batch_ = batch;
    TileShapes shapes;
    for (const int tile : {0, 1, 2, 3, 4, 5, 6, 7}) {
      shapes.rows[tile] = kHalf;
      shapes.row_bytes[tile] = 64;
    }
    const size_t first = batch < kHalf ? batch : kHalf;
    for (const int tile : {0, 1, 4}) shapes.rows[tile] = static_cast<uint8_t>(first);
    if (batch > kHalf) {
      for (const int tile : {2, 3, 7}) shapes.rows[tile] = static_cast<uint8_t>(batch - kHalf);
    }
    _tile_loadconfig(&shapes);
  }

 private:
  size_t batch_ = 0;  // batch size for which the tile registers are configured
};

// Sums in memory: those of one batch row are adjacent, `stride` bytes between batch rows. kBoth:
// the batch has more than sixteen rows.
template <bool kBoth>
RL_INLINE void LoadSums(const float* sums, size_t stride) {
  const auto bytes = static_cast<long>(stride);
  const float* second = sums + TileRegisters::kHalf * (stride / sizeof(float));
  _tile_loadd(0, sums, bytes);
  _tile_loadd(1, sums + kLanes, bytes);
  if constexpr (kBoth) {
    _tile_loadd(2, second, bytes);
    _tile_loadd(3, second + kLanes, bytes);
  }
}

RL_INLINE void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

template <bool kBoth>
RL_INLINE void StoreSums(float* sums, size_t stride) {
  const auto bytes = static_cast<long>(stride);
  float* second = sums + TileRegisters::kHalf * (stride / sizeof(float));
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + kLanes, bytes);
  if constexpr (kBoth) {
    _tile_stored(2, second, bytes);
    _tile_stored(3, second + kLanes, bytes);
  }
}

// Two panels, of which each part has the layout of one of Bf16Panel.
struct PanelPair {
  const uint16_t* first[2];  // part 0
  size_t stride;             // numbers between parts
};
RL_INLINE PanelPair PairOf(const Bf16Panel* panels) {
  return {{panels[0].part[0], panels[1].part[0]}, Bf16Panel::kPartSize};
}

// Rows of parts in memory, of which a tile register takes kStep elements.
struct SplitRows {
  const uint16_t* first;  // part 0 of the first row
  size_t row_bytes;       // between rows
  size_t stride;          // numbers between the parts of a row
};

// Adds the products of tiles 5 and 6 with the batch rows at x, which it loads unless tiles 4 and 7
// hold them already.
template <bool kBoth>
RL_INLINE void AddProducts(const uint16_t* x, size_t row_bytes, bool loaded) {
  const auto bytes = static_cast<long>(row_bytes);
  if (!loaded) _tile_loadd(4, x, bytes);
  _tile_dpbf16ps(0, 4, 5);
  _tile_dpbf16ps(1, 4, 6);
  if constexpr (kBoth) {
    if (!loaded) {
      _tile_loadd(7, x + TileRegisters::kHalf * (row_bytes / sizeof(uint16_t)), bytes);
    }
    _tile_dpbf16ps(2, 7, 5);
    _tile_dpbf16ps(3, 7, 6);
  }
}

// Adds the products of elements [k, k + kStep) of two panels with the same elements of the batch
// rows. Part i of a factor is some 2^-8i of it, so products of parts i and j with i + j beyond the
// last part of the more precise factor are left out. The order of the parts of rows turns around
// with each part of the panels: the one in tiles 4 and 7 is used again.
template <bool kBoth, int kRowParts, int kPanelParts>
RL_INLINE void AddStep(const PanelPair& panels, size_t k, const SplitRows& x) {
  constexpr long kPanelStride = 4 * kLanes;
  constexpr int kParts = kRowParts > kPanelParts ? kRowParts : kPanelParts;
  int loaded = -1;
#pragma GCC unroll 3
  for (int p = 0; p < kPanelParts; ++p) {
    const size_t at = static_cast<size_t>(p) * panels.stride + k * kLanes;
    _tile_loadd(5, panels.first[0] + at, kPanelStride);
    _tile_loadd(6, panels.first[1] + at, kPanelStride);
    const int count = kParts - p < kRowParts ? kParts - p : kRowParts;
#pragma GCC unroll 3
    for (int i = 0; i < count; ++i) {
      const int part = p % 2 == 0 ? count - 1 - i : i;
      AddProducts<kBoth>(x.first + static_cast<size_t>(part) * x.stride + k, x.row_bytes,
                         part == loaded);
      loaded = part;
    }
  }
}

// Tile of Gemm() for weights of type T and activations of kParts parts.
template <DType T, int kParts>
class AmxTile {
 public:
  using Panel = Bf16Panel;
  static constexpr size_t kDepth = Bf16Panel::kDepth;
  static constexpr size_t kRows = kSplitBlockRows;
  static constexpr size_t kMaxBatch = TileRegisters::kMaxBatch;
  static constexpr size_t kPanels = TileRegisters::kPanels;

  static void Fill(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
                   Panel& panel) {
    if constexpr (T == DType::kF16 || T == DType::kBF16) {
      SplitFloatPanel<T>(args, n, depth, panel);
    } else {
      alignas(64) QuantPanel<kDepth> unpacked;
      FillPanel<T>(args, n, depth, ahead, unpacked);
      SplitPanel(unpacked, panel);
    }
  }

  void Run(size_t batch, const Panel* panels, const TileArgs& args) {
    registers_.Configure(batch);
    args.ahead->Fetch(args.fetch);
    batch > TileRegisters::kHalf ? RunBatch<true>(panels, args) : RunBatch<false>(panels, args);
  }

 private:
  template <bool kBoth>
  static void RunBatch(const Panel* panels, const TileArgs& args) {
    constexpr size_t kSumStride = kRows * sizeof(float);
    args.depth.begin == 0 ? ZeroSums() : LoadSums<kBoth>(args.sums, kSumStride);
    const SplitRows x{reinterpret_cast<const uint16_t*>(args.x) + args.depth.begin, args.x_stride,
                      PaddedLength(args.k)};
    const size_t depth = args.depth.end - args.depth.begin;
    for (size_t k = 0; k < depth; k += TileRegisters::kStep) {
      AddStep<kBoth, kParts, kWeightParts<T>>(PairOf(panels), k, x);
    }
    StoreSums<kBoth>(args.sums, kSumStride);
  }

  TileRegisters registers_;
};

template <DType T>
void SplitBlockGemm(const MatMulArgs& args) {
  args.activation_bits == ActivationBits::k8 ? Gemm<AmxTile<T, 1>>(args)
                                             : Gemm<AmxTile<T, 2>>(args);
}

}  // namespace
}  // namespace rullama::cpu

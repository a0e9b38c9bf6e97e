// The register tile of GEMM in vector registers: weight panels times a few batch rows, by dot
// products of bytes. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/block_gemm.h"
#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/kernels/packed_panel.h"
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/quantized_row.h"

namespace rullama::cpu {
namespace {

template <typename T>
RL_INLINE const T* AtBatchRow(const T* p, size_t stride, size_t m) {
  return reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(p) + m * stride);
}

// Elements of k per panel of quants. A tile of batch rows of that depth stays in L1.
constexpr size_t kPanelDepth = 512;
using TilePanel = QuantPanel<kPanelDepth>;

// The weights and activations of a tile.
struct VectorOperands {
  const TilePanel* panels;
  QuantizedRow x;   // first batch row, at the panels' first element
  size_t x_stride;  // bytes between batch rows, the same for every array of QuantizedRow
  int zero;         // the quant of weight 0 in symmetric types
};

// dot += the products of elements [k, k + kGroup) with `x`, the high or the low bytes. More
// unrolling than kTileSteps is not faster and takes longer to compile.
template <int kGroup, bool kWide, int kBatch>
RL_INLINE void AddDots(const VectorOperands& tile, const int8_t* x, size_t k,
                       I32x16 (&dot)[kTilePanels][kBatch]) {
#pragma GCC unroll kTileSteps
  for (int step = 0; step < kGroup / 4; ++step) {
    const size_t at = k + 4 * static_cast<size_t>(step);
    U8x64 quants[kTilePanels];
    for (int p = 0; p < kTilePanels; ++p) {
      quants[p] = LoadBytes(tile.panels[p].quants + at * kLanes);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kBatch; ++m) {
      for (int p = 0; p < kTilePanels; ++p) {
        dot[p][m] = DotBroadcast<kWide>(dot[p][m], quants[p], x + m * tile.x_stride + at);
      }
    }
  }
}

// Dot products as every level has them: each 32-bit lane adds up four products of its row.
struct LaneDots {
  // Changes the first `depth` elements of a filled panel to the order in which Sum() reads them.
  RL_INLINE static void Arrange(TilePanel& /*panel*/, size_t /*depth*/) {}

  // dot = the integer products of elements [k, k + kGroup).
  template <int kGroup, bool kWide, int kParts, int kBatch>
  RL_INLINE static void Sum(const VectorOperands& tile, size_t k,
                            I32x16 (&dot)[kTilePanels][kBatch]) {
    for (int p = 0; p < kTilePanels; ++p) {
      for (int m = 0; m < kBatch; ++m) dot[p][m] = ZeroInt();
    }
    AddDots<kGroup, kWide>(tile, tile.x.high, k, dot);
    if constexpr (kParts == 2) {
      for (int p = 0; p < kTilePanels; ++p) {
        for (int m = 0; m < kBatch; ++m) dot[p][m] = Times256(dot[p][m]);
      }
      AddDots<kGroup, kWide>(tile, tile.x.low, k, dot);
    }
  }
};

// The scaled sum of activations [k, k + kGroup) of batch row m.
template <int kGroup>
RL_INLINE float SumOfGroup(const VectorOperands& tile, size_t k, size_t m) {
  if constexpr (kGroup == 32) return AtBatchRow(tile.x.scaled_sum32, tile.x_stride, m)[k / 32];
  const int32_t quants = AtBatchRow(tile.x.quant_sum16, tile.x_stride, m)[k / 16];
  return AtBatchRow(tile.x.scale, tile.x_stride, m)[k / 32] * static_cast<float>(quants);
}

// Adds the products of elements [k, k + kGroup) to acc. For symmetric types, zero * (sum of x) is
// subtracted in integers, which is exact and keeps the multipliers free.
template <typename Dots, int kGroup, bool kWide, bool kHasMin, int kParts, int kBatch>
RL_INLINE void AddGroup(const VectorOperands& tile, size_t k, F32x16 (&acc)[kTilePanels][kBatch]) {
  I32x16 dot[kTilePanels][kBatch];
  Dots::template Sum<kGroup, kWide, kParts>(tile, k, dot);
  if constexpr (!kHasMin && !(kWide && kWideQuantsAreSigned)) {
    const int32_t* quants =
        kGroup == 32 ? tile.x.quant_sum32 + k / 32 : tile.x.quant_sum16 + k / 16;
#pragma GCC unroll 8
    for (int m = 0; m < kBatch; ++m) {
      const I32x16 correction = Set1Int(-tile.zero * *AtBatchRow(quants, tile.x_stride, m));
      for (int p = 0; p < kTilePanels; ++p) dot[p][m] = AddInt(dot[p][m], correction);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kTilePanels; ++p) {
    const F32x16 scale = Load(tile.panels[p].scale + k);
    const F32x16 offset = Load(tile.panels[p].offset + k);
#pragma GCC unroll 8
    for (int m = 0; m < kBatch; ++m) {
      const float x_scale = AtBatchRow(tile.x.scale, tile.x_stride, m)[k / 32];
      acc[p][m] = Fma(ToFloat(dot[p][m]), Mul(scale, Set1(x_scale)), acc[p][m]);
      if constexpr (kHasMin) {
        const float sum = SumOfGroup<kGroup>(tile, k, static_cast<size_t>(m));
        acc[p][m] = Fma(offset, Set1(sum), acc[p][m]);
      }
    }
  }
}

// The first element of a tile's i-th group in the order in which packed_gemv.h adds them up, so
// that sums do not depend on which of the two kernels a batch meets. That order rises with k,
// except for types with groups of sixteen: of these, only Q6_K is packed.
template <int kGroup>
constexpr size_t ElementOfGroup(size_t i) {
  if constexpr (kGroup == 32) return 32 * i;
  constexpr size_t kPerChunk = kChunk / 16;
  const auto g = static_cast<int>(i % kPerChunk);
  return i / kPerChunk * kChunk +
         PackedBlock<DType::kQ6_K>::FirstElement(g / 4, /*pair=*/g / 2 % 2, /*v=*/g % 2);
}

template <typename Dots, int kGroup, bool kWide, bool kHasMin, int kParts, int kBatch>
void RunTile(const TileArgs& args, const VectorOperands& tile) {
  F32x16 acc[kTilePanels][kBatch];
  for (int p = 0; p < kTilePanels; ++p) {
    for (int m = 0; m < kBatch; ++m) {
      acc[p][m] = args.depth.begin == 0 ? Zero() : Load(args.sums + m * kBlockRows + p * kLanes);
    }
  }
  const size_t depth = args.depth.end - args.depth.begin;
  const size_t fetch = args.fetch * 32 / kPanelDepth + 1;
  constexpr size_t kPerFetch = 32 / kGroup;
  for (size_t i = 0; i < depth / kGroup; i += kPerFetch) {
    args.ahead->Fetch(fetch);
    for (size_t g = i; g < i + kPerFetch; ++g) {
      AddGroup<Dots, kGroup, kWide, kHasMin, kParts, kBatch>(tile, ElementOfGroup<kGroup>(g), acc);
    }
  }
  for (int p = 0; p < kTilePanels; ++p) {
    for (int m = 0; m < kBatch; ++m) Store(args.sums + m * kBlockRows + p * kLanes, acc[p][m]);
  }
}

template <typename Dots, int kGroup, bool kWide, bool kHasMin, int kParts, int kBatch = kTileBatch>
RL_INLINE void RunTileOf(size_t batch, const TileArgs& args, const VectorOperands& tile) {
  if constexpr (kBatch > 0) {
    if (batch == kBatch) return RunTile<Dots, kGroup, kWide, kHasMin, kParts, kBatch>(args, tile);
    RunTileOf<Dots, kGroup, kWide, kHasMin, kParts, kBatch - 1>(batch, args, tile);
  }
}

// Tile of Gemm() for weights of type T and activations of kParts bytes per element.
template <DType T, int kParts, typename Dots = LaneDots>
class VectorTile {
 public:
  using Panel = TilePanel;
  static constexpr size_t kDepth = kPanelDepth;
  static constexpr size_t kRows = kBlockRows;  // also the distance of sums in floats
  static constexpr size_t kMaxBatch = kTileBatch;
  static constexpr size_t kPanels = kTilePanels;

  static void Fill(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
                   Panel& panel) {
    FillPanel<T>(args, n, depth, ahead, panel);
    Dots::Arrange(panel, depth.end - depth.begin);
  }

  RL_INLINE void Run(size_t batch, const Panel* panels, const TileArgs& args) {
    const QuantizedRow row = ViewRow(args.x, args.k, kParts);
    using D = Decoder<T>;
    const VectorOperands tile{panels, From(row, args.depth.begin), args.x_stride, D::kZero};
    RunTileOf<Dots, D::kGroup, D::kWide, D::kHasMin, kParts>(batch, args, tile);
  }
};

template <DType T, typename Dots = LaneDots>
void BlockGemm(const MatMulArgs& args) {
  args.activation_bits == ActivationBits::k8 ? Gemm<VectorTile<T, 1, Dots>>(args)
                                             : Gemm<VectorTile<T, 2, Dots>>(args);
}

}  // namespace
}  // namespace rullama::cpu

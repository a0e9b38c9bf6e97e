// The integer tile of GEMM on Intel AMX's matrix unit: panels of byte quants times up to sixteen
// batch rows. The sums of each group are stored and scaled in vector registers. That makes a batch
// row slower than with AmxTile, but panels are filled faster, which decides for fewer than
// KernelTable::split_min_batch rows. Results are those of VectorTile, byte for byte. Internal
// linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/amx_tile.h"
#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/vector_tile.h"

namespace rullama::cpu {
namespace {

// The tile registers of a product of up to sixteen batch rows with two panels (GCC's intrinsics
// take literal numbers):
//   0, 1   sums of panel 0, of the high and of the low bytes of activations
//   2, 3   those of panel 1
//   4, 5   high and low bytes of activations
//   6, 7   weights of panels 0 and 1
class ByteTileRegisters {
 public:
  ByteTileRegisters() = default;
  ByteTileRegisters(const ByteTileRegisters&) = delete;
  ByteTileRegisters& operator=(const ByteTileRegisters&) = delete;
  ~ByteTileRegisters() { _tile_release(); }

  // `group`: elements of k that are multiplied at a time, the same in every call.
  void Configure(size_t batch, size_t group) {
    if (batch == batch_) return;
    batch_ = batch;
    TileShapes shapes;
    for (const int tile : {0, 1, 2, 3, 4, 5}) {
      shapes.rows[tile] = static_cast<uint8_t>(batch);
      shapes.row_bytes[tile] = tile < 4 ? 64 : static_cast<uint16_t>(group);
    }
    for (const int tile : {6, 7}) {
      shapes.rows[tile] = static_cast<uint8_t>(group / 4);
      shapes.row_bytes[tile] = 64;
    }
    _tile_loadconfig(&shapes);
  }

 private:
  size_t batch_ = 0;  // for which the tile registers are configured
};

// Sums of a group, as the tile registers leave them.
struct alignas(64) ByteTileSums {
  int32_t sums[kTilePanels][2][16][kLanes];  // by panel, byte of the activations and batch row
};

// Multiplies elements [k, k + group) of two panels with the batch rows.
template <int kParts>
RL_INLINE void MultiplyGroup(const VectorOperands& tile, size_t k, ByteTileSums& to) {
  constexpr long kRowBytes = 4 * kLanes;
  const auto stride = static_cast<long>(tile.x_stride);
  _tile_zero(0);
  _tile_zero(2);
  _tile_loadd(4, tile.x.high + k, stride);
  _tile_loadd(6, tile.panels[0].quants + k * kLanes, kRowBytes);
  _tile_dpbsud(0, 4, 6);
  _tile_loadd(7, tile.panels[1].quants + k * kLanes, kRowBytes);
  _tile_dpbsud(2, 4, 7);
  if constexpr (kParts == 2) {
    _tile_zero(1);
    _tile_zero(3);
    _tile_loadd(5, tile.x.low + k, stride);
    _tile_dpbsud(1, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_stored(0, to.sums[0][0], kRowBytes);
  _tile_stored(2, to.sums[1][0], kRowBytes);
  if constexpr (kParts == 2) {
    _tile_stored(1, to.sums[0][1], kRowBytes);
    _tile_stored(3, to.sums[1][1], kRowBytes);
  }
}

// Adds the scaled products of a group to the sums of `batch` rows, kBlockRows floats apart, as
// AddGroup() of vector_tile.h does.
template <int kGroup, bool kHasMin, int kParts>
RL_INLINE void AddScaledGroup(const VectorOperands& tile, size_t k, size_t batch,
                              const ByteTileSums& group, float* sums) {
  const int32_t* quants = kGroup == 32 ? tile.x.quant_sum32 + k / 32 : tile.x.quant_sum16 + k / 16;
  F32x16 scale[kTilePanels], offset[kTilePanels];
  for (int p = 0; p < kTilePanels; ++p) {
    scale[p] = Load(tile.panels[p].scale + k);
    offset[p] = Load(tile.panels[p].offset + k);
  }
  for (size_t m = 0; m < batch; ++m) {
    const F32x16 x_scale = Set1(AtBatchRow(tile.x.scale, tile.x_stride, m)[k / 32]);
    F32x16 x_sum;
    if constexpr (kHasMin) x_sum = Set1(SumOfGroup<kGroup>(tile, k, m));
    I32x16 correction;
    if constexpr (!kHasMin) {
      correction = Set1Int(-tile.zero * *AtBatchRow(quants, tile.x_stride, m));
    }
    float* row = sums + m * kBlockRows;
#pragma GCC unroll 2
    for (int p = 0; p < kTilePanels; ++p) {
      I32x16 dot = LoadInt(group.sums[p][0][m]);
      if constexpr (kParts == 2) dot = AddInt(Times256(dot), LoadInt(group.sums[p][1][m]));
      if constexpr (!kHasMin) dot = AddInt(dot, correction);
      F32x16 sum = Fma(ToFloat(dot), Mul(scale[p], x_scale), Load(row + p * kLanes));
      if constexpr (kHasMin) sum = Fma(offset[p], x_sum, sum);
      Store(row + p * kLanes, sum);
    }
  }
}

// Tile of Gemm() for weights of type T and activations of kParts bytes per element.
template <DType T, int kParts>
class AmxByteTile {
 public:
  using Panel = TilePanel;
  static constexpr size_t kDepth = kPanelDepth;
  static constexpr size_t kRows = kBlockRows;  // also the distance of sums in floats
  static constexpr size_t kMaxBatch = 16;
  static constexpr size_t kPanels = kTilePanels;

  static void Fill(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
                   Panel& panel) {
    FillPanel<T>(args, n, depth, ahead, panel);
  }

  void Run(size_t batch, const Panel* panels, const TileArgs& args) {
    using D = Decoder<T>;
    registers_.Configure(batch, D::kGroup);
    const QuantizedRow row = ViewRow(args.x, args.k, kParts);
    const VectorOperands tile{panels, From(row, args.depth.begin), args.x_stride, D::kZero};
    if (args.depth.begin == 0) {
      for (size_t m = 0; m < batch; ++m) {
        for (int p = 0; p < kTilePanels; ++p) {
          Store(args.sums + m * kBlockRows + static_cast<size_t>(p) * kLanes, Zero());
        }
      }
    }
    // The matrix unit multiplies a group while the one before is scaled.
    const size_t groups = (args.depth.end - args.depth.begin) / D::kGroup;
    const size_t fetch = args.fetch * D::kGroup / kPanelDepth + 1;
    ByteTileSums products[2];
    MultiplyGroup<kParts>(tile, ElementOfGroup<D::kGroup>(0), products[0]);
    for (size_t i = 0; i < groups; ++i) {
      args.ahead->Fetch(fetch);
      if (i + 1 < groups) {
        MultiplyGroup<kParts>(tile, ElementOfGroup<D::kGroup>(i + 1), products[(i + 1) % 2]);
      }
      AddScaledGroup<D::kGroup, D::kHasMin, kParts>(tile, ElementOfGroup<D::kGroup>(i), batch,
                                                    products[i % 2], args.sums);
    }
  }

 private:
  static_assert(!kWideQuantsAreSigned && kTilePanels == 2);
  ByteTileRegisters registers_;
};

// For fewer rows GEMV and the vector tile are as fast.
constexpr size_t kByteTileMinBatch = 16;

template <DType T>
void ByteBlockGemm(const MatMulArgs& args) {
  if (args.batch < kByteTileMinBatch) {
    return TableOf<Isa::kAvx512Vnni>().weights[static_cast<size_t>(T)].gemm(args);
  }
  args.activation_bits == ActivationBits::k8 ? Gemm<AmxByteTile<T, 1>>(args)
                                             : Gemm<AmxByteTile<T, 2>>(args);
}

}  // namespace
}  // namespace rullama::cpu

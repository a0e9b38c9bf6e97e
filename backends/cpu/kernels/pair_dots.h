// Dot products of GEMM by SMMLA, which multiplies eight bytes of two weight rows with eight bytes
// of two batch rows: four sums of eight products. Needs I8MM. Internal linkage throughout, see
// simd_portable.h.
#pragma once

#include "backends/cpu/kernels/vector_tile.h"

namespace rullama::cpu {
namespace {

// For VectorTile, in place of LaneDots.
struct PairDots {
  static constexpr int kDepth = 8;           // elements of k per product
  static constexpr int kPairs = kLanes / 2;  // pairs of weight rows in a panel

  // Panels keep [k / 8][row][k % 8].
  RL_INLINE static void Arrange(TilePanel& panel, size_t depth) {
    for (size_t k = 0; k < depth; k += kDepth) {
      uint8_t* at = panel.quants + k * kLanes;
      const U8x64 first = LoadBytes(at), second = LoadBytes(at + 64);
      for (size_t i = 0; i < kQuarters; ++i) {
        const auto a = BitCast<Uint4>(first.v[i]), b = BitCast<Uint4>(second.v[i]);
        vst1q_u8(at + 32 * i, vreinterpretq_u8_u32(vzip1q_u32(a, b)));
        vst1q_u8(at + 32 * i + 16, vreinterpretq_u8_u32(vzip2q_u32(a, b)));
      }
    }
  }

  template <int kGroup, bool kWide, int kParts, int kBatch>
  RL_INLINE static void Sum(const VectorOperands& tile, size_t k,
                            I32x16 (&dot)[kTilePanels][kBatch]) {
    static_assert(kTilePanels == 1);
    const uint8_t* quants = tile.panels->quants + k * kLanes;
    Sums<kBatch> sums = {};
    Add<kGroup>(quants, tile.x.high + k, tile.x_stride, sums);
    if constexpr (kParts == 2) {
      for (auto& pair : sums.v) {
        for (Int4& sum : pair) sum = sum << 8;
      }
      Add<kGroup>(quants, tile.x.low + k, tile.x_stride, sums);
    }
    for (int m = 0; m < kBatch; ++m) {
      for (int i = 0; i < kQuarters; ++i) {
        const Int4 lower = sums.v[m / 2][2 * i], upper = sums.v[m / 2][2 * i + 1];
        dot[0][m].v[i] = m % 2 == 0 ? vuzp1q_s32(lower, upper) : vuzp2q_s32(lower, upper);
      }
    }
  }

 private:
  // Lane 2 * i + j: weight row i of a pair, batch row j of a pair. An odd batch repeats its last
  // row.
  template <int kBatch>
  struct Sums {
    Int4 v[(kBatch + 1) / 2][kPairs];
  };

  template <int kGroup, int kBatch>
  RL_INLINE static void Add(const uint8_t* quants, const int8_t* x, size_t stride,
                            Sums<kBatch>& sums) {
#pragma GCC unroll 4
    for (size_t step = 0; step < kGroup / kDepth; ++step) {
      int8x16_t rows[(kBatch + 1) / 2];
      for (size_t m = 0; m < kBatch; m += 2) {
        const int8_t* first = x + m * stride + step * kDepth;
        const int8_t* second = m + 1 < kBatch ? first + stride : first;
        rows[m / 2] = vcombine_s8(vld1_s8(first), vld1_s8(second));
      }
#pragma GCC unroll 8
      for (size_t pair = 0; pair < kPairs; ++pair) {
        const uint8x16_t weights = vld1q_u8(quants + 16 * (step * kPairs + pair));
        for (size_t m = 0; m < (kBatch + 1) / 2; ++m) {
          sums.v[m][pair] = vmmlaq_s32(sums.v[m][pair], vreinterpretq_s8_u8(weights), rows[m]);
        }
      }
    }
  }
};

}  // namespace
}  // namespace rullama::cpu

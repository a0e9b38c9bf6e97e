// GEMV and GEMM of F16, BF16 and F32 weights, and of decoded types (decode_row.h), with float32
// activations: register tiles of four weight rows by four batch rows, with k along the lanes. Each
// result has sixteen float32 partial sums in rising order of k, added up once at the end. This is
// the same for every tile shape, so results depend on neither the range of weight rows nor the
// batch size. Included after one of the simd_*.h headers; internal linkage, see there.
#pragma once

#include <rullama/sdk/dtype.h>

#include "backends/cpu/kernels/decode_row.h"
#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {
namespace {

constexpr int kFloatTile = 4;

template <DType T>
RL_INLINE F32x16 LoadWeights(const uint8_t* row, size_t k) {
  if constexpr (T == DType::kF32) return Load(reinterpret_cast<const float*>(row) + k);
  if constexpr (T == DType::kF16) return LoadHalf(reinterpret_cast<const uint16_t*>(row) + k);
  if constexpr (T == DType::kBF16) return LoadBf16(reinterpret_cast<const uint16_t*>(row) + k);
}

template <DType T>
constexpr size_t kElementBytes = T == DType::kF32 ? 4 : 2;

// The last n < 16 weights of a row, padded with zeros.
template <DType T>
RL_INLINE F32x16 LoadLastWeights(const uint8_t* row, size_t k, size_t n) {
  alignas(64) uint8_t padded[16 * kElementBytes<T>] = {};
  std::memcpy(padded, row + k * kElementBytes<T>, n * kElementBytes<T>);
  return LoadWeights<T>(padded, 0);
}

struct FloatTile {
  const uint8_t* weights;  // first weight row
  size_t row_bytes;
  const uint8_t* x;  // first batch row
  size_t x_stride;
  size_t k;
  float* y;  // first batch row and weight row
  size_t y_stride;
};

template <DType T, int kRows, int kBatch>
void RunFloatTile(const FloatTile& tile) {
  F32x16 acc[kRows][kBatch];
  for (int r = 0; r < kRows; ++r) {
    for (int m = 0; m < kBatch; ++m) acc[r][m] = Zero();
  }
  // Bytes between a weight row and that of the next tile. Hardware does not foresee the latter, as
  // rows of a tile are read side by side, each for a few KiB.
  const size_t ahead = kRows * tile.row_bytes;
  size_t k = 0;
  for (; k + 16 <= tile.k; k += 16) {
    F32x16 x[kBatch];
    for (int m = 0; m < kBatch; ++m) {
      x[m] = Load(reinterpret_cast<const float*>(tile.x + m * tile.x_stride) + k);
    }
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* row = tile.weights + r * tile.row_bytes;
      if constexpr (kBatch == 1) PrefetchFar(row + k * kElementBytes<T> + ahead);
      const F32x16 w = LoadWeights<T>(row, k);
      for (int m = 0; m < kBatch; ++m) acc[r][m] = Fma(w, x[m], acc[r][m]);
    }
  }
  if (k < tile.k) {
    const size_t left = tile.k - k;
    for (int r = 0; r < kRows; ++r) {
      const F32x16 w = LoadLastWeights<T>(tile.weights + r * tile.row_bytes, k, left);
      for (int m = 0; m < kBatch; ++m) {
        const float* x = reinterpret_cast<const float*>(tile.x + m * tile.x_stride) + k;
        acc[r][m] = Fma(w, LoadPartial(x, left), acc[r][m]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int m = 0; m < kBatch; ++m) tile.y[m * tile.y_stride + r] = ReduceAdd(acc[r][m]);
  }
}

// `rows` weight rows with kBatch batch rows.
template <DType T, int kBatch>
void MultiplyTiles(FloatTile tile, size_t rows) {
  for (; rows >= kFloatTile; rows -= kFloatTile) {
    RunFloatTile<T, kFloatTile, kBatch>(tile);
    tile.weights += kFloatTile * tile.row_bytes;
    tile.y += kFloatTile;
  }
  for (; rows > 0; --rows) {
    RunFloatTile<T, 1, kBatch>(tile);
    tile.weights += tile.row_bytes;
    ++tile.y;
  }
}

// `rows` weight rows with all batch rows. A tile of the batch stays in L1 for all weight rows.
template <DType T>
void MultiplyBatch(FloatTile tile, size_t rows, size_t batch) {
  for (; batch >= kFloatTile; batch -= kFloatTile) {
    MultiplyTiles<T, kFloatTile>(tile, rows);
    tile.x += kFloatTile * tile.x_stride;
    tile.y += kFloatTile * tile.y_stride;
  }
  for (; batch > 0; --batch) {
    MultiplyTiles<T, 1>(tile, rows);
    tile.x += tile.x_stride;
    tile.y += tile.y_stride;
  }
}

template <DType T>
void DequantizeFloatRow(const void* row, size_t k, float* out) {
  if constexpr (IsDecodedType(T)) {
    DecodeRow(T, row, k, out);
  } else {
    const auto* p = static_cast<const uint8_t*>(row);
    size_t i = 0;
    for (; i + 16 <= k; i += 16) Store(out + i, LoadWeights<T>(p, i));
    if (i < k) StorePartial(out + i, k - i, LoadLastWeights<T>(p, i, k - i));
  }
}

template <DType T>
RL_INLINE FloatTile TileAt(const MatMulArgs& args, size_t n) {
  return {static_cast<const uint8_t*>(args.weights) + n * args.row_bytes,
          args.row_bytes,
          static_cast<const uint8_t*>(args.x),
          args.x_stride,
          args.k,
          args.y + n,
          args.y_stride};
}

// Small batches: converts weights as they are read, tile by tile, so that each is read from memory
// once.
template <DType T>
void FloatGemv(const MatMulArgs& args) {
  for (size_t n = args.n_begin; n < args.n_end; n += kFloatTile) {
    const size_t left = args.n_end - n;
    MultiplyBatch<T>(TileAt<T>(args, n), left < kFloatTile ? left : kFloatTile, args.batch);
  }
}

// Large batches, and all of decoded types: converts a group of weight rows once into scratch.
template <DType T>
void FloatGemm(const MatMulArgs& args) {
  [[maybe_unused]] float* rows =
      T == DType::kF32 ? nullptr : reinterpret_cast<float*>(AlignUp(args.scratch));
  for (size_t n = args.n_begin; n < args.n_end; n += kFloatPanelRows) {
    const size_t left = args.n_end - n;
    const size_t count = left < kFloatPanelRows ? left : kFloatPanelRows;
    FloatTile tile = TileAt<T>(args, n);
    if constexpr (T != DType::kF32) {
      for (size_t r = 0; r < count; ++r) {
        DequantizeFloatRow<T>(tile.weights + r * args.row_bytes, args.k, rows + r * args.k);
      }
      tile.weights = reinterpret_cast<const uint8_t*>(rows);
      tile.row_bytes = args.k * sizeof(float);
    }
    MultiplyBatch<DType::kF32>(tile, count, args.batch);
  }
}

}  // namespace
}  // namespace rullama::cpu

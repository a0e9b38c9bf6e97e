// Products of quantised rows with few columns. A row is streamed from memory once per group of
// columns; its codes are decoded into registers and used for every column of the group.
//
// Per 256 elements and column: four integer dot products of 64 codes (eight with two planes, where
// the sums of the high bytes are shifted and those of the low ones added) give sixteen int32
// partial sums each (four elements per lane), which are scaled and added in float32. The lanes are
// folded once per row. The order of summation depends on k alone. Included after one of the
// simd_*.h headers; internal linkage, see there.
#pragma once

#include "backends/cpu/kernels/activations.h"
#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

constexpr size_t kGemvColumns = 4;  // columns per pass over the weights

// The codes and scales of 256 weights of a row.
template <DType T>
struct DecodedChunk {
  RL_INLINE explicit DecodedChunk(const uint8_t* chunk)
      : scales(Decoder<T>::Scales(chunk)),
        codes{Decoder<T>::template Codes<0>(chunk), Decoder<T>::template Codes<1>(chunk),
              Decoder<T>::template Codes<2>(chunk), Decoder<T>::template Codes<3>(chunk)} {}
  ScalePair scales;
  U8x64 codes[4];
};

template <DType T, int kPlanes, int kPiece>
RL_INLINE F32x16 AddPiece(const DecodedChunk<T>& weights, const QuantizedRow& row, size_t index,
                          const F32x16& scales, const F32x16& acc) {
  const size_t at = index * kChunk + 64 * kPiece;
  I32x16 dot = Dot<Decoder<T>::kWide>(ZeroInt(), weights.codes[kPiece], row.high + at);
  if constexpr (kPlanes == 2) {
    dot = Dot<Decoder<T>::kWide>(Times256(dot), weights.codes[kPiece], row.low + at);
  }
  return Fma(ToFloat(dot), SpreadScales<kPiece>(scales), acc);
}

// The products of chunk `index` of the row with one column. A chunk has a sum of its own, so that
// the chain of dependent additions along a row is one addition per chunk.
template <DType T, int kPlanes>
RL_INLINE F32x16 ChunkTimesColumn(const DecodedChunk<T>& weights, const QuantizedRow& row,
                                  size_t index) {
  const F32x16 scales = Mul(weights.scales.scale, LoadPairs(row.scale + index * 8));
  F32x16 sum = Zero();
  if constexpr (Decoder<T>::kHasMin || Decoder<T>::kZero != 0) {
    sum = Mul(weights.scales.offset, Load(row.sum16 + index * 16));
  }
  sum = AddPiece<T, kPlanes, 0>(weights, row, index, scales, sum);
  sum = AddPiece<T, kPlanes, 1>(weights, row, index, scales, sum);
  sum = AddPiece<T, kPlanes, 2>(weights, row, index, scales, sum);
  return AddPiece<T, kPlanes, 3>(weights, row, index, scales, sum);
}

template <DType T, int kPlanes, size_t kColumns>
RL_INLINE void AddChunk(const uint8_t* chunk, const QuantizedRow* rows, size_t index,
                        F32x16 (&acc)[kColumns]) {
  const DecodedChunk<T> weights(chunk);
  for (size_t c = 0; c < kColumns; ++c) {
    acc[c] = Add(acc[c], ChunkTimesColumn<T, kPlanes>(weights, rows[c], index));
  }
}

// One row with kColumns columns; y + c * y_stride takes column c.
template <DType T, int kPlanes, size_t kColumns>
RL_INLINE void RowTimesColumns(const uint8_t* weights, size_t k, const QuantizedRow* rows, float* y,
                               size_t y_stride) {
  const size_t chunks = k / kChunk;
  F32x16 acc[kColumns];
  for (size_t c = 0; c < kColumns; ++c) acc[c] = Zero();
  for (size_t i = 0; i < chunks; ++i) {
    const uint8_t* chunk = weights + i * kChunkBytes<T>;
    for (size_t at = 0; at < kChunkBytes<T>; at += 64) Prefetch(chunk + kPrefetchBytes + at);
    AddChunk<T, kPlanes>(chunk, rows, i, acc);
  }
  if constexpr (kBlockElements<T> < kChunk) {
    if (k % kChunk != 0) {
      const PaddedChunk<T> last(weights + chunks * kChunkBytes<T>, k % kChunk);
      AddChunk<T, kPlanes>(last.bytes, rows, chunks, acc);
    }
  }
  for (size_t c = 0; c < kColumns; ++c) y[c * y_stride] = ReduceAdd(acc[c]);
}

template <DType T, int kPlanes, size_t kColumns>
void RowsTimesColumns(const MatMulArgs& args, size_t first) {
  const auto* weights = static_cast<const uint8_t*>(args.weights);
  const auto* x = static_cast<const uint8_t*>(args.x);
  QuantizedRow rows[kColumns];
  for (size_t c = 0; c < kColumns; ++c) {
    rows[c] = ViewRow(x + (first + c) * args.x_stride, args.k, kPlanes);
  }
  float* y = args.y + first * args.y_stride;
  for (size_t n = args.n_begin; n < args.n_end; ++n) {
    RowTimesColumns<T, kPlanes, kColumns>(weights + n * args.row_bytes, args.k, rows, y + n,
                                          args.y_stride);
  }
}

template <DType T, int kPlanes>
void GemvOfPlanes(const MatMulArgs& args) {
  for (size_t first = 0; first < args.columns; first += kGemvColumns) {
    const size_t left = args.columns - first;
    if (left == 1) {
      RowsTimesColumns<T, kPlanes, 1>(args, first);
    } else if (left == 2) {
      RowsTimesColumns<T, kPlanes, 2>(args, first);
    } else if (left == 3) {
      RowsTimesColumns<T, kPlanes, 3>(args, first);
    } else {
      RowsTimesColumns<T, kPlanes, kGemvColumns>(args, first);
    }
  }
}

template <DType T>
void BlockGemv(const MatMulArgs& args) {
  args.planes == 1 ? GemvOfPlanes<T, 1>(args) : GemvOfPlanes<T, 2>(args);
}

// --- Dequantisation ------------------------------------------------------------------------------
template <DType T>
void DequantizeChunk(const uint8_t* chunk, size_t elements, float* out) {
  using D = Decoder<T>;
  const ScalePair pair = D::Scales(chunk);
  float scale[16], offset[16];
  Store(scale, pair.scale);
  Store(offset, pair.offset);
  uint8_t codes[kChunk];
  StoreBytes(codes, D::template Codes<0>(chunk));
  StoreBytes(codes + 64, D::template Codes<1>(chunk));
  StoreBytes(codes + 128, D::template Codes<2>(chunk));
  StoreBytes(codes + 192, D::template Codes<3>(chunk));
  for (size_t i = 0; i < elements; ++i) {
    const int code = D::kWide && kWideCodesAreSigned ? static_cast<int8_t>(codes[i]) : codes[i];
    // Symmetric types subtract the zero from the code, which is exact, and round once.
    const float value = scale[i / 16] * static_cast<float>(code - D::kZero);
    out[i] = D::kHasMin ? value + offset[i / 16] : value;
  }
}

template <DType T>
void DequantizeBlockRow(const void* row, size_t k, float* out) {
  const auto* p = static_cast<const uint8_t*>(row);
  size_t done = 0;
  for (; done + kChunk <= k; done += kChunk, p += kChunkBytes<T>) {
    DequantizeChunk<T>(p, kChunk, out + done);
  }
  if constexpr (kBlockElements<T> < kChunk) {
    if (done < k) {
      const PaddedChunk<T> last(p, k - done);
      DequantizeChunk<T>(last.bytes, k - done, out + done);
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

// Products of quantised rows with few columns. Rows are streamed from memory once per group of
// columns, a few side by side; their codes are decoded into registers and used for every column of
// the group.
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

// The scales of 256 weights and what they do to the scales and sums of a column.
template <DType T, int kGroup = Decoder<T>::kGroup>
struct ChunkScales;

template <DType T>
struct ChunkScales<T, 32> {
  RL_INLINE explicit ChunkScales(const uint8_t* chunk) : pairs(Decoder<T>::Pairs(chunk)) {}

  // Scales of products in even lanes, what offsets add in odd ones.
  RL_INLINE F32x16 Times(const QuantizedRow& row, size_t index) const {
    return Mul(pairs, Interleave(row.scale + index * 8, row.sum32 + index * 8));
  }
  RL_INLINE F32x16 Start(const F32x16& scaled, const QuantizedRow& /*row*/,
                         size_t /*index*/) const {
    return kHasOffset<T> ? KeepOdd(scaled) : Zero();
  }
  template <int kPiece>
  RL_INLINE static F32x16 Spread(const F32x16& scaled) {
    return SpreadEven<kPiece>(scaled);
  }

  F32x16 pairs;
};

template <DType T>
struct ChunkScales<T, 16> {
  RL_INLINE explicit ChunkScales(const uint8_t* chunk) : pair(Decoder<T>::Scales(chunk)) {}

  RL_INLINE F32x16 Times(const QuantizedRow& row, size_t index) const {
    return Mul(pair.scale, LoadPairs(row.scale + index * 8));
  }
  RL_INLINE F32x16 Start(const F32x16& /*scaled*/, const QuantizedRow& row, size_t index) const {
    if constexpr (!kHasOffset<T>) return Zero();
    const F32x16 sums = ToFloat(LoadInt(row.codes16 + index * 16));
    return Mul(pair.offset, Mul(sums, LoadPairs(row.scale + index * 8)));
  }
  template <int kPiece>
  RL_INLINE static F32x16 Spread(const F32x16& scaled) {
    return SpreadScales<kPiece>(scaled);
  }

  ScalePair pair;
};

// The codes and scales of 256 weights of a row.
template <DType T>
struct DecodedChunk {
  RL_INLINE explicit DecodedChunk(const uint8_t* chunk)
      : scales(chunk),
        codes{Decoder<T>::template Codes<0>(chunk), Decoder<T>::template Codes<1>(chunk),
              Decoder<T>::template Codes<2>(chunk), Decoder<T>::template Codes<3>(chunk)} {}
  ChunkScales<T> scales;
  U8x64 codes[4];
};

template <DType T, int kPlanes, int kPiece>
RL_INLINE F32x16 AddPiece(const DecodedChunk<T>& weights, const QuantizedRow& row, size_t index,
                          const F32x16& scaled, const F32x16& acc) {
  const size_t at = index * kChunk + 64 * kPiece;
  I32x16 dot = Dot<Decoder<T>::kWide>(ZeroInt(), weights.codes[kPiece], row.high + at);
  if constexpr (kPlanes == 2) {
    dot = Dot<Decoder<T>::kWide>(Times256(dot), weights.codes[kPiece], row.low + at);
  }
  return Fma(ToFloat(dot), ChunkScales<T>::template Spread<kPiece>(scaled), acc);
}

// The products of chunk `index` of the row with one column. A chunk has a sum of its own, so that
// the chain of dependent additions along a row is one addition per chunk.
template <DType T, int kPlanes>
RL_INLINE F32x16 ChunkTimesColumn(const DecodedChunk<T>& weights, const QuantizedRow& row,
                                  size_t index) {
  const F32x16 scaled = weights.scales.Times(row, index);
  F32x16 sum = weights.scales.Start(scaled, row, index);
  sum = AddPiece<T, kPlanes, 0>(weights, row, index, scaled, sum);
  sum = AddPiece<T, kPlanes, 1>(weights, row, index, scaled, sum);
  sum = AddPiece<T, kPlanes, 2>(weights, row, index, scaled, sum);
  return AddPiece<T, kPlanes, 3>(weights, row, index, scaled, sum);
}

template <DType T, int kPlanes, size_t kColumns>
RL_INLINE void AddChunk(const uint8_t* chunk, const QuantizedRow* rows, size_t index,
                        F32x16 (&acc)[kColumns]) {
  const DecodedChunk<T> weights(chunk);
  for (size_t c = 0; c < kColumns; ++c) {
    acc[c] = Add(acc[c], ChunkTimesColumn<T, kPlanes>(weights, rows[c], index));
  }
}

// Rows that are read side by side, far from one another. One stream keeps less under way than
// memory can give; six read up to 1.6 times as much as one (PlainRead of
// bench/cpu_kernels_bench.cc).
constexpr size_t kGemvRows = 6;

struct GemvRows {
  const uint8_t* first;
  size_t distance;  // bytes between rows
  size_t count;     // at most kGemvRows
};

// Rows with kColumns columns: sums[row][column].
template <DType T, int kPlanes, size_t kColumns>
RL_INLINE void RowsTimesColumns(const GemvRows& rows, size_t k, const QuantizedRow* columns,
                                float (&sums)[kGemvRows][kColumns]) {
  const size_t chunks = k / kChunk;
  F32x16 acc[kGemvRows][kColumns];
  for (size_t r = 0; r < rows.count; ++r) {
    for (size_t c = 0; c < kColumns; ++c) acc[r][c] = Zero();
  }
  for (size_t i = 0; i < chunks; ++i) {
    const uint8_t* chunk = rows.first + i * kChunkBytes<T>;
    for (size_t r = 0; r < rows.count; ++r, chunk += rows.distance) {
      for (size_t at = 0; at < kChunkBytes<T>; at += 64) Prefetch(chunk + kPrefetchBytes + at);
      AddChunk<T, kPlanes>(chunk, columns, i, acc[r]);
    }
  }
  if constexpr (kBlockElements<T> < kChunk) {
    if (k % kChunk != 0) {
      for (size_t r = 0; r < rows.count; ++r) {
        const uint8_t* row = rows.first + r * rows.distance;
        const PaddedChunk<T> last(row + chunks * kChunkBytes<T>, k % kChunk);
        AddChunk<T, kPlanes>(last.bytes, columns, chunks, acc[r]);
      }
    }
  }
  for (size_t r = 0; r < rows.count; ++r) {
    for (size_t c = 0; c < kColumns; ++c) sums[r][c] = ReduceAdd(acc[r][c]);
  }
}

// All rows of a call with kColumns columns from `first` on.
template <DType T, int kPlanes, size_t kColumns>
void GemvColumns(const MatMulArgs& args, size_t first) {
  const auto* x = static_cast<const uint8_t*>(args.x);
  QuantizedRow columns[kColumns];
  for (size_t c = 0; c < kColumns; ++c) {
    columns[c] = ViewRow(x + (first + c) * args.x_stride, args.k, kPlanes);
  }
  const size_t total = args.n_end - args.n_begin;
  const size_t apart = (total + kGemvRows - 1) / kGemvRows;
  const auto* weights = static_cast<const uint8_t*>(args.weights);
  float sums[kGemvRows][kColumns];
  for (size_t i = 0; i < apart; ++i) {
    const size_t n = args.n_begin + i;
    const size_t count = (total - i + apart - 1) / apart;
    const GemvRows rows{weights + n * args.row_bytes, apart * args.row_bytes, count};
    RowsTimesColumns<T, kPlanes>(rows, args.k, columns, sums);
    for (size_t r = 0; r < count; ++r) {
      for (size_t c = 0; c < kColumns; ++c) {
        args.y[(first + c) * args.y_stride + n + r * apart] = sums[r][c];
      }
    }
  }
}

template <DType T, int kPlanes>
void GemvOfPlanes(const MatMulArgs& args) {
  for (size_t first = 0; first < args.columns; first += kGemvColumns) {
    const size_t left = args.columns - first;
    if (left == 1) {
      GemvColumns<T, kPlanes, 1>(args, first);
    } else if (left == 2) {
      GemvColumns<T, kPlanes, 2>(args, first);
    } else if (left == 3) {
      GemvColumns<T, kPlanes, 3>(args, first);
    } else {
      GemvColumns<T, kPlanes, kGemvColumns>(args, first);
    }
  }
}

template <DType T>
void BlockGemv(const MatMulArgs& args) {
  args.planes == 1 ? GemvOfPlanes<T, 1>(args) : GemvOfPlanes<T, 2>(args);
}

}  // namespace
}  // namespace rullama::cpu

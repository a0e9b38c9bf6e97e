// GEMV for block types in GGUF layout. Weight rows are streamed from memory once per group of up to
// kGemvBatch batch rows, several weight rows side by side; their quants are decoded to registers
// and used for every batch row of the group.
//
// Per 256 elements and batch row, four integer dot products of 64 quants give sixteen int32 partial
// sums each (four elements per lane), which are scaled and added in float32. With 16-bit
// activations there are eight: the sums of the high bytes are multiplied by 256 and those of the
// low bytes are added. Lanes are summed once per weight row. The order of summation depends on k
// alone. Included after one of the simd_*.h headers; internal linkage, see there.
#pragma once

#include "backends/cpu/kernels/codebook_decoders.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/prefetch.h"
#include "backends/cpu/kernels/quantized_row.h"
#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

constexpr size_t kGemvBatch = 4;  // batch rows per pass over the weights

// The scales and offsets of a chunk of 256 weights, and their products with those of a batch row.
template <DType T, int kGroup = Decoder<T>::kGroup>
struct ChunkScales;

template <DType T>
struct ChunkScales<T, 32> {
  RL_INLINE explicit ChunkScales(const uint8_t* chunk) : pairs(Decoder<T>::Pairs(chunk)) {}

  // Even lanes: weight scale * activation scale. Odd lanes: weight offset * sum of activations.
  RL_INLINE F32x16 Times(const QuantizedRow& row, size_t index) const {
    return Mul(pairs, Interleave(row.scale + index * 8, row.scaled_sum32 + index * 8));
  }
  RL_INLINE F32x16 Start(const F32x16& scaled, const QuantizedRow& /*row*/,
                         size_t /*index*/) const {
    return kHasOffset<T> ? KeepOdd(scaled) : Zero();
  }
  template <int kQuarter>
  RL_INLINE static F32x16 Spread(const F32x16& scaled) {
    return SpreadEven<kQuarter>(scaled);
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
    const F32x16 sums = ToFloat(LoadInt(row.quant_sum16 + index * 16));
    return Mul(pair.offset, Mul(sums, LoadPairs(row.scale + index * 8)));
  }
  template <int kQuarter>
  RL_INLINE static F32x16 Spread(const F32x16& scaled) {
    return SpreadScales<kQuarter>(scaled);
  }

  ScalePair pair;
};

// The decoded quants and scales of a chunk of a weight row.
template <DType T>
struct DecodedChunk {
  RL_INLINE explicit DecodedChunk(const uint8_t* chunk)
      : scales(chunk),
        quants{Decoder<T>::template Quants<0>(chunk), Decoder<T>::template Quants<1>(chunk),
               Decoder<T>::template Quants<2>(chunk), Decoder<T>::template Quants<3>(chunk)} {}
  ChunkScales<T> scales;
  U8x64 quants[4];
};

// acc + the scaled products of elements [64 * kQuarter, 64 * kQuarter + 64) of chunk `index`. This
// and ChunkDot() are inlined on every level: the portable level is slower by a quarter without.
template <DType T, int kParts, int kQuarter>
[[gnu::always_inline]] inline F32x16 AddQuarter(const DecodedChunk<T>& weights,
                                                const QuantizedRow& row, size_t index,
                                                const F32x16& scaled, const F32x16& acc) {
  const size_t at = index * kChunk + 64 * kQuarter;
  I32x16 dot = Dot<Decoder<T>::kWide>(ZeroInt(), weights.quants[kQuarter], row.high + at);
  if constexpr (kParts == 2) {
    dot = Dot<Decoder<T>::kWide>(Times256(dot), weights.quants[kQuarter], row.low + at);
  }
  return Fma(ToFloat(dot), ChunkScales<T>::template Spread<kQuarter>(scaled), acc);
}

// The scaled products of chunk `index` with one batch row. Each chunk starts a new sum, so that the
// chain of dependent additions along a row has one addition per chunk.
template <DType T, int kParts>
[[gnu::always_inline]] inline F32x16 ChunkDot(const DecodedChunk<T>& weights,
                                              const QuantizedRow& row, size_t index) {
  const F32x16 scaled = weights.scales.Times(row, index);
  F32x16 sum = weights.scales.Start(scaled, row, index);
  sum = AddQuarter<T, kParts, 0>(weights, row, index, scaled, sum);
  sum = AddQuarter<T, kParts, 1>(weights, row, index, scaled, sum);
  sum = AddQuarter<T, kParts, 2>(weights, row, index, scaled, sum);
  return AddQuarter<T, kParts, 3>(weights, row, index, scaled, sum);
}

// The batch rows of a pass. One or two are a specialisation each. Up to kGemvBatch are a loop,
// which is as fast because the decoded chunk stays in registers, and compiles in a fraction of the
// time.
template <size_t kMaxBatch>
struct GemvBatch {
  RL_INLINE size_t Count() const { return kMaxBatch <= 2 ? kMaxBatch : count; }
  QuantizedRow row;  // the first one
  size_t stride;     // bytes between rows
  size_t count;
};

template <typename V>
RL_INLINE const V* Shift(const V* p, size_t bytes) {
  return reinterpret_cast<const V*>(reinterpret_cast<const uint8_t*>(p) + bytes);
}
// The batch row `bytes` bytes after x.
RL_INLINE QuantizedRow RowAfter(const QuantizedRow& x, size_t bytes) {
  return {Shift(x.high, bytes),         Shift(x.low, bytes),         Shift(x.scale, bytes),
          Shift(x.scaled_sum32, bytes), Shift(x.quant_sum32, bytes), Shift(x.quant_sum16, bytes)};
}

template <DType T, int kParts, size_t kMaxBatch>
RL_INLINE void AddChunk(const uint8_t* chunk, const GemvBatch<kMaxBatch>& x, size_t index,
                        F32x16 (&acc)[kMaxBatch]) {
  const DecodedChunk<T> weights(chunk);
  for (size_t m = 0; m < x.Count(); ++m) {
    acc[m] = Add(acc[m], ChunkDot<T, kParts>(weights, RowAfter(x.row, m * x.stride), index));
  }
}

// Weight rows that are read in parallel, far apart in memory. A single stream cannot saturate
// memory bandwidth; six streams read up to 1.6 times as fast (PlainRead in
// bench/cpu_kernels_bench.cc).
constexpr size_t kGemvRows = 6;

struct GemvRows {
  const uint8_t* first;
  size_t distance;  // bytes between rows
  size_t count;     // at most kGemvRows
};

// The incomplete last chunks of `rows`, padded (see PaddedChunk). Not inlined, so that it is
// compiled once per type.
template <DType T>
struct PaddedChunks {
  [[gnu::noinline]] void Fill(const GemvRows& rows, size_t at, size_t elements) {
    for (size_t r = 0; r < rows.count; ++r) {
      chunks[r] = PaddedChunk<T>(rows.first + r * rows.distance + at, elements);
    }
  }
  PaddedChunk<T> chunks[kGemvRows];
};

// sums[row][m] = the products of `rows` with batch row m.
template <DType T, int kParts, size_t kMaxBatch>
RL_INLINE void MultiplyRows(const GemvRows& rows, size_t k, const GemvBatch<kMaxBatch>& x,
                            float (&sums)[kGemvRows][kMaxBatch]) {
  constexpr bool kMayBePadded = kBlockElements<T> < kChunk;
  const size_t whole = k / kChunk;
  const size_t chunks = kMayBePadded ? (k + kChunk - 1) / kChunk : whole;
  F32x16 acc[kGemvRows][kMaxBatch];
  for (size_t r = 0; r < rows.count; ++r) {
    for (F32x16& sum : acc[r]) sum = Zero();
  }
  [[maybe_unused]] PaddedChunks<T> padded;
  GemvRows here = rows;
  for (size_t i = 0; i < chunks; ++i, here.first += kChunkBytes<T>) {
    if constexpr (kMayBePadded) {
      if (i == whole) {
        padded.Fill(rows, i * kChunkBytes<T>, k % kChunk);
        here = {padded.chunks[0].bytes, sizeof(PaddedChunk<T>), rows.count};
      }
    }
    const uint8_t* chunk = here.first;
    for (size_t r = 0; r < rows.count; ++r, chunk += here.distance) {
      for (size_t at = 0; at < kChunkBytes<T>; at += 64) Prefetch(chunk + kPrefetchBytes + at);
      AddChunk<T, kParts>(chunk, x, i, acc[r]);
    }
  }
  for (size_t r = 0; r < rows.count; ++r) {
    for (size_t m = 0; m < x.Count(); ++m) sums[r][m] = ReduceAdd(acc[r][m]);
  }
}

// All weight rows of a call with batch rows [first, first + count), at most kMaxBatch.
template <DType T, int kParts, size_t kMaxBatch>
void GemvPass(const MatMulArgs& args, size_t first, size_t count) {
  const auto* row = static_cast<const uint8_t*>(args.x) + first * args.x_stride;
  const GemvBatch<kMaxBatch> x{ViewRow(row, args.k, kParts), args.x_stride, count};
  const size_t total = args.n_end - args.n_begin;
  const size_t apart = (total + kGemvRows - 1) / kGemvRows;
  const auto* weights = static_cast<const uint8_t*>(args.weights);
  float sums[kGemvRows][kMaxBatch];
  for (size_t i = 0; i < apart; ++i) {
    const size_t n = args.n_begin + i;
    const size_t rows = (total - i + apart - 1) / apart;
    MultiplyRows<T, kParts>({weights + n * args.row_bytes, apart * args.row_bytes, rows}, args.k, x,
                            sums);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t m = 0; m < x.Count(); ++m) {
        args.y[(first + m) * args.y_stride + n + r * apart] = sums[r][m];
      }
    }
  }
}

template <DType T, int kParts>
void GemvWithParts(const MatMulArgs& args) {
  for (size_t first = 0; first < args.batch; first += kGemvBatch) {
    const size_t left = args.batch - first;
    if (left == 1) {
      GemvPass<T, kParts, 1>(args, first, 1);
    } else if (left == 2) {
      GemvPass<T, kParts, 2>(args, first, 2);
    } else {
      GemvPass<T, kParts, kGemvBatch>(args, first, left < kGemvBatch ? left : kGemvBatch);
    }
  }
}

template <DType T>
void BlockGemv(const MatMulArgs& args) {
  args.activation_bits == ActivationBits::k8 ? GemvWithParts<T, 1>(args)
                                             : GemvWithParts<T, 2>(args);
}

}  // namespace
}  // namespace rullama::cpu

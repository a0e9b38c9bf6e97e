// GEMV for packed rows. Quants are loaded from memory straight into registers, sixteen weight rows
// to a vector, and multiplied with every batch row there.
//
// Per group of 32 (or 16) elements and batch row: integer dot products of four elements of sixteen
// weight rows, one for each byte of an activation, then one conversion and one multiplication with
// both scales in float32. The order of summation depends on the type and k alone. Internal linkage
// throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/packed_rows.h"
#include "backends/cpu/kernels/quantized_row.h"

namespace rullama::cpu {
namespace {

// Batch rows from some element on. Each array of batch row m is m * stride bytes after that of
// `row`.
struct BatchRows {
  QuantizedRow row;
  size_t stride;

  template <typename T>
  RL_INLINE const T* At(const T* array, size_t m) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(array) + m * stride);
  }
  RL_INLINE BatchRows From(size_t k) const { return {cpu::From(row, k), stride}; }
};

template <DType T>
struct BlockScales {
  float scale[kGroups<T> * kLanes];
  float offset[kGroups<T> * kLanes];
};

// acc += the scaled dot products of group `group` of a block. For symmetric types, kZero * (sum of
// x) is subtracted in integers, which is exact and keeps the multipliers free; for the others the
// minimum is multiplied with the sum of x.
template <DType T, int kParts, int kBatch>
RL_INLINE void AddScaled(const I32x16 (&dot)[kParts][kBatch], const BatchRows& x,
                         const BlockScales<T>& scales, size_t group, F32x16 (&acc)[kBatch]) {
  constexpr size_t kElements = BlockType<T>::kGroup;
  const F32x16 scale = Load(scales.scale + group * kLanes);
  F32x16 offset;
  if constexpr (BlockType<T>::kHasMin) offset = Load(scales.offset + group * kLanes);
#pragma GCC unroll 8
  for (size_t m = 0; m < kBatch; ++m) {
    I32x16 sum = dot[0][m];
    if constexpr (kParts == 2) sum = AddInt(Times256(sum), dot[1][m]);
    if constexpr (BlockType<T>::kZero != 0) {
      const int32_t* x_quant_sum =
          kElements == 32 ? x.At(x.row.quant_sum32, m) : x.At(x.row.quant_sum16, m);
      sum = AddInt(sum, Set1Int(-BlockType<T>::kZero * x_quant_sum[group]));
    }
    const float* x_scale = x.At(x.row.scale, m) + group * kElements / 32;
    acc[m] = Fma(ToFloat(sum), Mul(scale, Set1(*x_scale)), acc[m]);
    if constexpr (BlockType<T>::kHasMin) {
      acc[m] = Fma(offset, Set1(x.At(x.row.scaled_sum32, m)[group]), acc[m]);
    }
  }
}

// Adds the products of vector kVector of a pair at step `step` to the sums of its group. Inlined on
// every level: left to itself, the compiler calls it at the portable level, which takes 15 %
// longer.
template <DType T, int kPair, int kVector, int kParts, int kBatch>
[[gnu::always_inline]] inline void AddDots(const uint8_t* words, int section, int step,
                                           const BatchRows& x, I32x16 (&dot)[kParts][kBatch]) {
  using P = PackedBlock<T>;
  const U8x64 quants = P::template Quants<kPair, kVector>(words, section, step);
  const size_t at = P::FirstElement(section, kPair, kVector) + 4 * static_cast<size_t>(step);
#pragma GCC unroll 8
  for (size_t m = 0; m < kBatch; ++m) {
    dot[0][m] = DotOnce<BlockType<T>::kWide>(dot[0][m], quants, x.At(x.row.high, m) + at);
    if constexpr (kParts == 2) {
      dot[1][m] = DotOnce<BlockType<T>::kWide>(dot[1][m], quants, x.At(x.row.low, m) + at);
    }
  }
}

template <int kParts, int kBatch>
RL_INLINE void Clear(I32x16 (&dot)[kParts][kBatch]) {
  for (auto& plane : dot) {
    for (I32x16& sum : plane) sum = ZeroInt();
  }
}

// Calls f(step) for each step. With one batch row all steps are unrolled. With more, the rows of a
// step hide the latency already; unrolling all steps would not be faster and would take twice as
// long to compile.
template <int kSteps, int kBatch, typename F>
RL_INLINE void ForSteps(F f) {
  if constexpr (kBatch == 1) {
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; ++step) f(step);
  } else {
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step) f(step);
  }
}

// Adds one group of elements: vector kVector of a pair or, if the pair is one group, both vectors.
// Used for larger batches, whose sums fill the registers.
template <DType T, int kParts, int kBatch, int kPair, int kVector>
RL_INLINE void AddGroup(const uint8_t* words, int section, const BatchRows& x,
                        const BlockScales<T>& scales, F32x16 (&acc)[kBatch]) {
  using P = PackedBlock<T>;
  I32x16 dot[kParts][kBatch];
  Clear(dot);
  ForSteps<P::kSteps, kBatch>([&](int step) {
    AddDots<T, kPair, kVector>(words, section, step, x, dot);
    if constexpr (!P::kTwoGroups) AddDots<T, kPair, 1>(words, section, step, x, dot);
  });
  AddScaled<T>(dot, x, scales, P::FirstElement(section, kPair, kVector) / BlockType<T>::kGroup,
               acc);
}

// Adds the two groups of a pair together, so that they share loads. Used for small batches, whose
// sums alone are too few to hide the latency of the dot products.
template <DType T, int kParts, int kBatch, int kPair>
RL_INLINE void AddTwoGroups(const uint8_t* words, int section, const BatchRows& x,
                            const BlockScales<T>& scales, F32x16 (&acc)[kBatch]) {
  using P = PackedBlock<T>;
  I32x16 first[kParts][kBatch], second[kParts][kBatch];
  Clear(first);
  Clear(second);
  ForSteps<P::kSteps, kBatch>([&](int step) {
    AddDots<T, kPair, 0>(words, section, step, x, first);
    AddDots<T, kPair, 1>(words, section, step, x, second);
  });
  constexpr size_t kElements = BlockType<T>::kGroup;
  AddScaled<T>(first, x, scales, P::FirstElement(section, kPair, 0) / kElements, acc);
  AddScaled<T>(second, x, scales, P::FirstElement(section, kPair, 1) / kElements, acc);
}

template <DType T, int kParts, int kBatch, int kPair = 0>
RL_INLINE void AddSection(const uint8_t* words, int section, const BatchRows& x,
                          const BlockScales<T>& scales, F32x16 (&acc)[kBatch]) {
  using P = PackedBlock<T>;
  if constexpr (kPair < P::kPairs) {
    if constexpr (P::kTwoGroups && 2 * kParts * kBatch <= kPackedGemvSums) {
      AddTwoGroups<T, kParts, kBatch, kPair>(words, section, x, scales, acc);
    } else {
      AddGroup<T, kParts, kBatch, kPair, 0>(words, section, x, scales, acc);
      if constexpr (P::kTwoGroups) {
        AddGroup<T, kParts, kBatch, kPair, 1>(words, section, x, scales, acc);
      }
    }
    AddSection<T, kParts, kBatch, kPair + 1>(words, section, x, scales, acc);
  }
}

// Prefetch distance of packed rows, into L2. The hardware prefetcher follows these sequential reads
// but stops at 4 KiB page borders, which the software prefetch bridges. Distances from 4 to 16 KiB
// measured the same.
constexpr size_t kPackedPrefetchBytes = 8192;

// Prefetches the share of one section: a burst of prefetches would delay loads that hit the cache.
template <DType T>
RL_INLINE void FetchAhead(const uint8_t* words, int section) {
  constexpr size_t kLines = (kWords<T> + PackedBlock<T>::kSections - 1) / PackedBlock<T>::kSections;
  const uint8_t* first = words + kPackedPrefetchBytes + static_cast<size_t>(section) * kLines * 64;
  for (size_t line = 0; line < kLines; ++line) PrefetchFar(first + line * 64);
}

// All weight rows of a call with batch rows [first, first + kBatch).
template <DType T, int kParts, int kBatch>
void PackedGemvRows(const MatMulArgs& args, size_t first) {
  const BatchRows x{
      ViewRow(static_cast<const uint8_t*>(args.x) + first * args.x_stride, args.k, kParts),
      args.x_stride};
  const size_t blocks = args.k / kBlockElements<T>;
  for (size_t n = args.n_begin; n < args.n_end; n += kLanes) {
    const PackedRows<T> rows(static_cast<const uint8_t*>(args.weights) + n * args.row_bytes,
                             args.k);
    F32x16 acc[kBatch];
    for (F32x16& sum : acc) sum = Zero();
    for (size_t block = 0; block < blocks; ++block) {
      const uint8_t* words = rows.Words(block);
      alignas(64) BlockScales<T> scales;
      PackedBlock<T>::Scales(rows.D(block), words, scales.scale, scales.offset);
      const BatchRows here = x.From(block * kBlockElements<T>);
      for (int section = 0; section < PackedBlock<T>::kSections; ++section) {
        FetchAhead<T>(words, section);
        AddSection<T, kParts>(words, section, here, scales, acc);
      }
    }
    for (size_t m = 0; m < kBatch; ++m) {
      Store(args.y + (first + m) * args.y_stride + n, acc[m]);
    }
  }
}

// Runs one pass over the weight rows for at most `left` batch rows and returns how many it took.
// Not every batch size has a specialisation: five rows take passes of four and one.
template <DType T, int kParts, int kBatch = kPackedGemvBatch>
RL_INLINE size_t PackedGemvPass(const MatMulArgs& args, size_t first, size_t left) {
  if constexpr (kBatch > 1) {
    constexpr int kFewer = kBatch > 4 ? kBatch - 2 : kBatch - 1;
    if (left < kBatch) return PackedGemvPass<T, kParts, kFewer>(args, first, left);
  }
  PackedGemvRows<T, kParts, kBatch>(args, first);
  return kBatch;
}

// Bytes of weight rows that are multiplied with the whole batch before the next ones are read: at
// most half of L2.
constexpr size_t kPackedBlockBytes = size_t{256} << 10;

template <DType T>
void PackedGemv(const MatMulArgs& args) {
  const size_t panels = kPackedBlockBytes / (kPanelRows * args.row_bytes);
  const size_t rows = (panels < 1 ? 1 : panels) * kPanelRows;
  MatMulArgs block = args;
  for (size_t n = args.n_begin; n < args.n_end; n += rows) {
    block.n_begin = n;
    block.n_end = n + rows < args.n_end ? n + rows : args.n_end;
    size_t first = 0;
    while (first < args.batch) {
      const size_t left = args.batch - first;
      first += args.activation_bits == ActivationBits::k8
                   ? PackedGemvPass<T, 1>(block, first, left)
                   : PackedGemvPass<T, 2>(block, first, left);
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

// Products of packed rows with few columns: codes go from memory into registers and meet every
// column there, sixteen rows to a vector.
//
// Per 32 (or 16) elements and column: integer dot products of four elements of sixteen rows, one
// for each byte of the activations, then one conversion and one product with both scales in
// float32. The order of summation depends on the type and k alone. Internal linkage throughout, see
// simd_portable.h.
#pragma once

#include "backends/cpu/kernels/activations.h"
#include "backends/cpu/kernels/packed_rows.h"

namespace rullama::cpu {
namespace {

// Columns from some element on; column c is c * stride bytes behind column 0 in each of its parts.
struct PackedColumns {
  QuantizedRow x;
  size_t stride;

  template <typename Part>
  RL_INLINE const Part* At(const Part* part, size_t column) const {
    return reinterpret_cast<const Part*>(reinterpret_cast<const uint8_t*>(part) + column * stride);
  }
  RL_INLINE PackedColumns From(size_t k) const { return {cpu::From(x, k), stride}; }
};

template <DType T>
struct BlockScales {
  float scale[kGroups<T> * kLanes];
  float offset[kGroups<T> * kLanes];
};

// acc += what the products of group `group` of a block come to. Codes of symmetric types are moved
// to around zero in integers, exactly and away from the units that multiply; the minimum of the
// others is a product with the sum of x.
template <DType T, int kPlanes, int kColumns>
RL_INLINE void AddScaled(const I32x16 (&dot)[kPlanes][kColumns], const PackedColumns& columns,
                         const BlockScales<T>& scales, size_t group, F32x16 (&acc)[kColumns]) {
  constexpr size_t kElements = Decoder<T>::kGroup;
  const F32x16 scale = Load(scales.scale + group * kLanes);
  F32x16 offset;
  if constexpr (Decoder<T>::kHasMin) offset = Load(scales.offset + group * kLanes);
#pragma GCC unroll 8
  for (size_t c = 0; c < kColumns; ++c) {
    I32x16 sum = dot[0][c];
    if constexpr (kPlanes == 2) sum = AddInt(Times256(sum), dot[1][c]);
    if constexpr (Decoder<T>::kZero != 0) {
      const int32_t* x_codes =
          kElements == 32 ? columns.At(columns.x.codes32, c) : columns.At(columns.x.codes16, c);
      sum = AddInt(sum, Set1Int(-Decoder<T>::kZero * x_codes[group]));
    }
    const float* x_scale = columns.At(columns.x.scale, c) + group * kElements / 32;
    acc[c] = Fma(ToFloat(sum), Mul(scale, Set1(*x_scale)), acc[c]);
    if constexpr (Decoder<T>::kHasMin) {
      acc[c] = Fma(offset, Set1(columns.At(columns.x.sum32, c)[group]), acc[c]);
    }
  }
}

// Adds the products of vector kVector of step `step` of a bundle to the sums of its group.
template <DType T, int kBundle, int kVector, int kPlanes, int kColumns>
RL_INLINE void AddDots(const uint8_t* words, int piece, int step, const PackedColumns& columns,
                       I32x16 (&dot)[kPlanes][kColumns]) {
  using P = PackedBlock<T>;
  const U8x64 codes = P::template Codes<kBundle, kVector>(words, piece, step);
  const size_t at = P::Offset(piece, kBundle, kVector) + 4 * static_cast<size_t>(step);
#pragma GCC unroll 8
  for (size_t c = 0; c < kColumns; ++c) {
    dot[0][c] = DotOnce<Decoder<T>::kWide>(dot[0][c], codes, columns.At(columns.x.high, c) + at);
    if constexpr (kPlanes == 2) {
      dot[1][c] = DotOnce<Decoder<T>::kWide>(dot[1][c], codes, columns.At(columns.x.low, c) + at);
    }
  }
}

template <int kPlanes, int kColumns>
RL_INLINE void Clear(I32x16 (&dot)[kPlanes][kColumns]) {
  for (auto& plane : dot) {
    for (I32x16& sum : plane) sum = ZeroInt();
  }
}

// A group of elements by itself, for many columns: one of the vectors of a bundle, or, of a bundle
// that is one group, both.
template <DType T, int kPlanes, int kColumns, int kBundle, int kVector>
RL_INLINE void AddGroup(const uint8_t* words, int piece, const PackedColumns& columns,
                        const BlockScales<T>& scales, F32x16 (&acc)[kColumns]) {
  using P = PackedBlock<T>;
  I32x16 dot[kPlanes][kColumns];
  Clear(dot);
#pragma GCC unroll 8
  for (int step = 0; step < P::kSteps; ++step) {
    AddDots<T, kBundle, kVector>(words, piece, step, columns, dot);
    if constexpr (!P::kSplit) AddDots<T, kBundle, 1>(words, piece, step, columns, dot);
  }
  AddScaled<T>(dot, columns, scales, P::Offset(piece, kBundle, kVector) / Decoder<T>::kGroup, acc);
}

// The two groups of a bundle side by side, which share loads: for few columns, whose sums are too
// few to keep the units busy.
template <DType T, int kPlanes, int kColumns, int kBundle>
RL_INLINE void AddTwoGroups(const uint8_t* words, int piece, const PackedColumns& columns,
                            const BlockScales<T>& scales, F32x16 (&acc)[kColumns]) {
  using P = PackedBlock<T>;
  I32x16 first[kPlanes][kColumns], second[kPlanes][kColumns];
  Clear(first);
  Clear(second);
#pragma GCC unroll 8
  for (int step = 0; step < P::kSteps; ++step) {
    AddDots<T, kBundle, 0>(words, piece, step, columns, first);
    AddDots<T, kBundle, 1>(words, piece, step, columns, second);
  }
  constexpr size_t kElements = Decoder<T>::kGroup;
  AddScaled<T>(first, columns, scales, P::Offset(piece, kBundle, 0) / kElements, acc);
  AddScaled<T>(second, columns, scales, P::Offset(piece, kBundle, 1) / kElements, acc);
}

template <DType T, int kPlanes, int kColumns, int kBundle = 0>
RL_INLINE void AddPiece(const uint8_t* words, int piece, const PackedColumns& columns,
                        const BlockScales<T>& scales, F32x16 (&acc)[kColumns]) {
  using P = PackedBlock<T>;
  if constexpr (kBundle < P::kBundles) {
    if constexpr (P::kSplit && 2 * kPlanes * kColumns <= kPackedSums) {
      AddTwoGroups<T, kPlanes, kColumns, kBundle>(words, piece, columns, scales, acc);
    } else {
      AddGroup<T, kPlanes, kColumns, kBundle, 0>(words, piece, columns, scales, acc);
      if constexpr (P::kSplit) {
        AddGroup<T, kPlanes, kColumns, kBundle, 1>(words, piece, columns, scales, acc);
      }
    }
    AddPiece<T, kPlanes, kColumns, kBundle + 1>(words, piece, columns, scales, acc);
  }
}

// How far ahead of use packed rows are asked for, into the second-level cache. They are read from
// the first byte to the last in large pages, which the hardware follows by itself; this bridges
// what it leaves at the borders of its own pages. From 4 to 16 KiB made no difference.
constexpr size_t kPackedPrefetchBytes = 8192;

// A share of it with each piece: a burst would keep loads waiting that find what they want.
template <DType T>
RL_INLINE void FetchAhead(const uint8_t* words, int piece) {
  constexpr size_t kLines = (kWords<T> + PackedBlock<T>::kPieces - 1) / PackedBlock<T>::kPieces;
  const uint8_t* first = words + kPackedPrefetchBytes + static_cast<size_t>(piece) * kLines * 64;
  for (size_t line = 0; line < kLines; ++line) PrefetchFar(first + line * 64);
}

// All rows of a call with kColumns columns from `first` on.
template <DType T, int kPlanes, int kColumns>
void PackedGemvColumns(const MatMulArgs& args, size_t first) {
  const PackedColumns columns{
      ViewRow(static_cast<const uint8_t*>(args.x) + first * args.x_stride, args.k, kPlanes),
      args.x_stride};
  const size_t blocks = args.k / kBlockElements<T>;
  for (size_t n = args.n_begin; n < args.n_end; n += kLanes) {
    const PackedRows<T> rows(static_cast<const uint8_t*>(args.weights) + n * args.row_bytes,
                             args.k);
    F32x16 acc[kColumns];
    for (F32x16& sum : acc) sum = Zero();
    for (size_t block = 0; block < blocks; ++block) {
      const uint8_t* words = rows.Words(block);
      alignas(64) BlockScales<T> scales;
      PackedBlock<T>::Scales(rows.Odd(block), words, scales.scale, scales.offset);
      const PackedColumns here = columns.From(block * kBlockElements<T>);
      for (int piece = 0; piece < PackedBlock<T>::kPieces; ++piece) {
        FetchAhead<T>(words, piece);
        AddPiece<T, kPlanes>(words, piece, here, scales, acc);
      }
    }
    for (size_t c = 0; c < kColumns; ++c) {
      Store(args.y + (first + c) * args.y_stride + n, acc[c]);
    }
  }
}

// As many columns as one pass takes; returns how many. Not every number has code of its own: five
// are four and one.
template <DType T, int kPlanes, int kColumns = kPackedColumns>
RL_INLINE size_t PackedGemvPass(const MatMulArgs& args, size_t first, size_t left) {
  if constexpr (kColumns > 1) {
    constexpr int kFewer = kColumns > 4 ? kColumns - 2 : kColumns - 1;
    if (left < kColumns) return PackedGemvPass<T, kPlanes, kFewer>(args, first, left);
  }
  PackedGemvColumns<T, kPlanes, kColumns>(args, first);
  return kColumns;
}

// Bytes of rows that meet all columns before the next ones are read: half of a second-level cache,
// or less.
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
    while (first < args.columns) {
      const size_t left = args.columns - first;
      first += args.planes == 1 ? PackedGemvPass<T, 1>(block, first, left)
                                : PackedGemvPass<T, 2>(block, first, left);
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

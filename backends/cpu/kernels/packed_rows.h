// Packed weights: the blocks of sixteen rows interleaved, so that one 64-byte vector holds the same
// four bytes of each row. Each 32-bit lane belongs to one row: quants are used as they come from
// memory, for all sixteen rows at once, and accumulators need no horizontal sum.
//
// A packed group takes as many bytes as its sixteen rows in GGUF layout. A "word" is four
// consecutive bytes of a GGUF block, and a packed word is that word of each of the sixteen rows. If
// the length of a block is not a multiple of four (Q4_0, Q5_0, Q8_0, Q6_K), its two-byte scale `d`
// is stored apart:
//
//   uint8_t d[blocks][16][2]             Q4_0, Q5_0, Q8_0 and Q6_K only
//   uint8_t words[blocks][kWords][16][4]
//
// The words of a block are stored in the order in which the kernels read them, because the hardware
// prefetcher follows only sequential reads. Example: one Q6_K block of 256 elements.
//
//   GGUF, one row:    ql[128]       qh[64]         scales[16]     d
//                     words 0..31   words 32..47   words 48..51   2 bytes
//
//   packed position    0 ..  3   scales 0..3
//                      4 .. 11   qh 0, ql 0, qh 1, ql 1, qh 2, ql 2, qh 3, ql 3    section 0
//                     12 .. 15   ql 8, ql 9, ql 10, ql 11                          section 0
//                     16 .. 27   the same with qh  4..7,  ql  4..7  and ql 12..15    section 1
//                     28 .. 39   the same with qh  8..11, ql 16..19 and ql 24..27    section 2
//                     40 .. 51   the same with qh 12..15, ql 20..23 and ql 28..31    section 3
// (Numbers after ql, qh and scales count words from the start of that field.) With one load of
// qh 0 and ql 0, section 0 gets the quants of elements 0..3 (low nibbles) and 64..67 (high nibbles)
// of sixteen rows; with qh 0 and ql 8 those of elements 32..35 and 96..99.
//
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/block_types.h"

namespace rullama::cpu {
namespace {

// The order in which kernels read a packed block of type T: the scales first, then kSections
// sections. A section has kPairs pairs of quant vectors; both vectors of a pair are decoded from
// the same loads, in kSteps steps of four elements. Vector v of a pair holds, at step s, the
// elements FirstElement(section, pair, v) + [4 * s, 4 * s + 4). If kTwoGroups is set, the two
// vectors of a pair belong to different groups of elements, each with its own scale; otherwise the
// whole block is one group. SourceWord(i) is the GGUF word that is stored at position i.
template <DType T>
struct PackedBlock;
template <DType T>
constexpr bool kCanBePacked = requires {
  PackedBlock<T>::kPairs;
};

RL_INLINE U8x64 LoadWord(const uint8_t* words, int position) {
  return LoadBytes(words + position * 64);
}

// Types with 32 elements per block: d, then qs. The second half of the elements is in the high
// nibbles (Q4_0) or four words after the first half (Q8_0).
struct PackedBlock32 {
  static constexpr size_t kDOffset = 0;  // byte offset of d in a GGUF block
  static constexpr int kSections = 1;
  static constexpr int kPairs = 1;
  static constexpr int kSteps = 4;
  static constexpr bool kTwoGroups = false;
  static constexpr size_t FirstElement(int /*section*/, int /*pair*/, int v) {
    return v == 0 ? 0 : 16;
  }
  RL_INLINE static void Scales(const uint8_t* d, const uint8_t* /*words*/, float* scale,
                               float* /*offset*/) {
    Store(scale, LoadHalf(reinterpret_cast<const uint16_t*>(d)));
  }
};

template <>
struct PackedBlock<DType::kQ4_0> : PackedBlock32 {
  static constexpr size_t SourceWord(size_t position) { return position; }
  template <int kPair, int kVector>
  RL_INLINE static U8x64 Quants(const uint8_t* words, int /*section*/, int step) {
    return MoveBits<4 * kVector, 0, 15>(LoadWord(words, step));
  }
};

// Word 0 of Q5_0 is qh, whose bit i is bit 4 of quant i; the nibbles follow. The packed word has
// the same bits transposed: bit 8 * b + 4 * v + s belongs to quant 16 * v + 4 * s + b, which is
// byte b of vector v at step s, so that one shift moves the bits of all four bytes into place.
template <>
struct PackedBlock<DType::kQ5_0> : PackedBlock32 {
  static constexpr size_t SourceWord(size_t position) { return position; }
  static constexpr uint32_t TransposeHighBits(uint32_t qh) {
    uint32_t packed = 0;
    for (uint32_t row = 0; row < 8; ++row) {
      // The multiplication moves bit b of a nibble to bit 8 * b.
      packed |= ((qh >> (4 * row) & 15U) * 0x00204081U & 0x01010101U) << row;
    }
    return packed;
  }
  static constexpr uint32_t RestoreHighBits(uint32_t packed) {
    uint32_t qh = 0;
    for (uint32_t row = 0; row < 8; ++row) {
      for (uint32_t b = 0; b < 4; ++b) qh |= (packed >> (8 * b + row) & 1U) << (4 * row + b);
    }
    return qh;
  }
  template <int kBit>
  RL_INLINE static U8x64 WithHighBit(const U8x64& nibbles, const uint8_t* words) {
    return Or(nibbles, MoveBits<kBit, 4, 16>(LoadWord(words, 0)));
  }
  template <int kPair, int kVector>
  RL_INLINE static U8x64 Quants(const uint8_t* words, int /*section*/, int step) {
    const U8x64 nibbles = MoveBits<4 * kVector, 0, 15>(LoadWord(words, 1 + step));
    switch (step) {  // a constant wherever the steps are unrolled
      case 0:
        return WithHighBit<4 * kVector>(nibbles, words);
      case 1:
        return WithHighBit<4 * kVector + 1>(nibbles, words);
      case 2:
        return WithHighBit<4 * kVector + 2>(nibbles, words);
      default:
        return WithHighBit<4 * kVector + 3>(nibbles, words);
    }
  }
};
// The high bits of every block survive packing and unpacking.
static_assert(PackedBlock<DType::kQ5_0>::TransposeHighBits(0x00000002) == 0x00000100 &&
              PackedBlock<DType::kQ5_0>::TransposeHighBits(0x00010000) == 0x00000010 &&
              PackedBlock<DType::kQ5_0>::RestoreHighBits(
                  PackedBlock<DType::kQ5_0>::TransposeHighBits(0x9E3779B9)) == 0x9E3779B9);

template <>
struct PackedBlock<DType::kQ8_0> : PackedBlock32 {
  static constexpr size_t SourceWord(size_t position) { return position / 2 + position % 2 * 4; }
  template <int kPair, int kVector>
  RL_INLINE static U8x64 Quants(const uint8_t* words, int /*section*/, int step) {
    return XorByte(LoadWord(words, 2 * step + kVector), static_cast<uint8_t>(kWideBias));
  }
};

// Stores the four bytes of each lane times `factor` as four vectors.
template <int kByte = 0>
RL_INLINE void StoreBytesTimes(const U8x64& bytes, const F32x16& factor, float* out) {
  if constexpr (kByte < 4) {
    Store(out + kByte * kLanes, Mul(ByteOfLane<kByte>(bytes), factor));
    StoreBytesTimes<kByte + 1>(bytes, factor, out);
  }
}
// Q4_K and Q5_K: word 0 holds the f16 numbers d and dmin, words 1 to 3 the field `scales`, eight
// scales and eight minima of 6 bits each.
RL_INLINE void SixBitScales(const uint8_t* words, float* scale, float* offset) {
  const U8x64 d_and_dmin = LoadWord(words, 0);
  const U8x64 low = LoadWord(words, 1), min = LoadWord(words, 2), high = LoadWord(words, 3);
  const F32x16 d = HalfOfLane<0>(d_and_dmin);
  const F32x16 minus_dmin = Sub(Zero(), HalfOfLane<1>(d_and_dmin));
  StoreBytesTimes(MoveBits<0, 0, 0x3F>(low), d, scale);
  StoreBytesTimes(Or(MoveBits<0, 0, 0x0F>(high), MoveBits<6, 4, 0x30>(low)), d, scale + 4 * kLanes);
  StoreBytesTimes(MoveBits<0, 0, 0x3F>(min), minus_dmin, offset);
  StoreBytesTimes(Or(MoveBits<4, 0, 0x0F>(high), MoveBits<6, 4, 0x30>(min)), minus_dmin,
                  offset + 4 * kLanes);
}

template <>
struct PackedBlock<DType::kQ4_K> {
  static constexpr size_t kDOffset = 0;
  static constexpr int kSections = 4;
  static constexpr int kPairs = 1;
  static constexpr int kSteps = 8;
  static constexpr bool kTwoGroups = true;
  static constexpr size_t SourceWord(size_t position) { return position; }
  static constexpr size_t FirstElement(int section, int /*pair*/, int v) {
    return 64 * static_cast<size_t>(section) + 32 * static_cast<size_t>(v);
  }
  template <int kPair, int kVector>
  RL_INLINE static U8x64 Quants(const uint8_t* words, int section, int step) {
    return MoveBits<4 * kVector, 0, 15>(LoadWord(words, 4 + 8 * section + step));
  }
  RL_INLINE static void Scales(const uint8_t* /*d*/, const uint8_t* words, float* scale,
                               float* offset) {
    SixBitScales(words, scale, offset);
  }
};

// Words of Q5_K in GGUF order: d and dmin (0), scales (1..3), qh (4..11), qs (12..43). Packed, each
// word of qh is followed by the word of qs that pair 0 reads with it; the qs of the other pairs
// follow.
template <>
struct PackedBlock<DType::kQ5_K> {
  static constexpr size_t kDOffset = 0;
  static constexpr int kSections = 1;
  static constexpr int kPairs = 4;
  static constexpr int kSteps = 8;
  static constexpr bool kTwoGroups = true;
  static constexpr size_t SourceWord(size_t position) {
    if (position < 4 || position >= 20) return position;
    return position % 2 == 0 ? 4 + (position - 4) / 2 : 12 + (position - 4) / 2;
  }
  static constexpr size_t FirstElement(int /*section*/, int pair, int v) {
    return 64 * static_cast<size_t>(pair) + 32 * static_cast<size_t>(v);
  }
  template <int kPair, int kVector>
  RL_INLINE static U8x64 Quants(const uint8_t* words, int /*section*/, int step) {
    const U8x64 qh = LoadWord(words, 4 + 2 * step);
    const U8x64 qs = LoadWord(words, kPair == 0 ? 5 + 2 * step : 12 + 8 * kPair + step);
    return Or(MoveBits<4 * kVector, 0, 15>(qs), MoveBits<2 * kPair + kVector, 4, 16>(qh));
  }
  RL_INLINE static void Scales(const uint8_t* /*d*/, const uint8_t* words, float* scale,
                               float* offset) {
    SixBitScales(words, scale, offset);
  }
};

// See the picture at the top. A section covers sixteen elements of each of the four quarters of a
// half (128 elements) of the block.
template <>
struct PackedBlock<DType::kQ6_K> {
  static constexpr size_t kQl = 0, kQh = 32, kScales = 48;  // first GGUF word of each field
  static constexpr size_t kDOffset = 208;
  static constexpr int kSections = 4;
  static constexpr int kPairs = 2;
  static constexpr int kSteps = 4;
  static constexpr bool kTwoGroups = true;
  static constexpr size_t SourceWord(size_t position) {
    if (position < 4) return kScales + position;
    const size_t section = (position - 4) / 12, half = section / 2, sixteen = section % 2;
    const size_t i = (position - 4) % 12;
    if (i >= 8) return kQl + 16 * half + 8 + 4 * sixteen + (i - 8);
    return i % 2 == 0 ? kQh + 8 * half + 4 * sixteen + i / 2
                      : kQl + 16 * half + 4 * sixteen + i / 2;
  }
  static constexpr size_t FirstElement(int section, int pair, int v) {
    const auto half = static_cast<size_t>(section / 2), sixteen = static_cast<size_t>(section % 2);
    return 128 * half + 16 * sixteen + 32 * static_cast<size_t>(pair) + 64 * static_cast<size_t>(v);
  }
  template <int kPair, int kVector>
  RL_INLINE static U8x64 Quants(const uint8_t* words, int section, int step) {
    const int first = 4 + 12 * section;
    const U8x64 qh = LoadWord(words, first + 2 * step);
    const U8x64 ql = LoadWord(words, first + (kPair == 0 ? 2 * step + 1 : 8 + step));
    return Or(MoveBits<4 * kVector, 0, 15>(ql), MoveBits<2 * kPair + 4 * kVector, 4, 0x30>(qh));
  }
  template <int kGroup = 0>
  RL_INLINE static void StoreScales(const uint8_t* words, const F32x16& d, float* scale) {
    if constexpr (kGroup < 16) {
      Store(scale + kGroup * kLanes,
            Mul(SignedByteOfLane<kGroup % 4>(LoadWord(words, kGroup / 4)), d));
      StoreScales<kGroup + 1>(words, d, scale);
    }
  }
  RL_INLINE static void Scales(const uint8_t* d, const uint8_t* words, float* scale,
                               float* /*offset*/) {
    StoreScales(words, LoadHalf(reinterpret_cast<const uint16_t*>(d)), scale);
  }
};

template <DType T>
constexpr size_t kDBytes = BlockType<T>::kBlockBytes % 4;
template <DType T>
constexpr size_t kWords = BlockType<T>::kBlockBytes / 4;
template <DType T>
constexpr size_t kWordsOffset =
    PackedBlock<T>::kDOffset == 0 ? kDBytes<T> : 0;  // byte offset in a GGUF block
template <DType T>
constexpr size_t kGroups =
    kBlockElements<T> / BlockType<T>::kGroup;  // groups with a scale per block

// View of a packed group of sixteen rows of k elements.
template <DType T>
struct PackedRows {
  RL_INLINE PackedRows(const void* group, size_t k)
      : d(static_cast<const uint8_t*>(group)),
        words(d + k / kBlockElements<T> * kLanes * kDBytes<T>) {}
  RL_INLINE const uint8_t* D(size_t block) const { return d + block * kLanes * kDBytes<T>; }
  RL_INLINE const uint8_t* Words(size_t block) const {
    return words + block * kWords<T> * 4 * kLanes;
  }
  const uint8_t* d;
  const uint8_t* words;
};

}  // namespace
}  // namespace rullama::cpu

// Decoders (weight_decoders.h) of the types whose blocks index code books: iq2 and iq3. A quant is
// the level of a weight plus or minus kZero: the tables hold the levels of an entry as bytes that
// kZero has been added to, and where the sign is set, 2 * kZero less the byte has it.
//
// Only constants of dequantize_codebook.h are used: its functions have external linkage, so no
// instruction-set level may compile them. Internal linkage throughout, see simd_portable.h.
#pragma once

#include <rullama/sdk/dequantize_codebook.h>

#include "backends/cpu/kernels/weight_decoders.h"

namespace rullama::cpu {
namespace {

// Entries of a code book with a byte for each level, the first one lowest. Entry: uint64_t with
// levels of two bits, or uint32_t with levels of four.
template <typename Entry, size_t kEntries>
struct BookBytes {
  constexpr BookBytes(const uint16_t (&grid)[kEntries], const sdk::Levels& levels, int zero)
      : entry{} {
    constexpr int kCount = sizeof(Entry), kBits = 16 / kCount;
    for (size_t e = 0; e < kEntries; ++e) {
      for (int i = 0; i < kCount; ++i) {
        const int code = grid[e] >> (kBits * i) & ((1 << kBits) - 1);
        entry[e] |= static_cast<Entry>(levels.levels[code] + zero) << (8 * i);
      }
    }
  }
  Entry entry[kEntries];
};

template <DType T>
constexpr int kZeroOf = BlockType<T>::kZero;
constexpr BookBytes<uint64_t, 256> kIq2XxsBytes(sdk::kIq2XxsGrid, sdk::kIq2Levels,
                                                kZeroOf<DType::kIQ2_XXS>);
constexpr BookBytes<uint64_t, 512> kIq2XsBytes(sdk::kIq2XsGrid, sdk::kIq2Levels,
                                               kZeroOf<DType::kIQ2_XS>);
constexpr BookBytes<uint64_t, 1024> kIq2SBytes(sdk::kIq2SGrid, sdk::kIq2Levels,
                                               kZeroOf<DType::kIQ2_S>);
constexpr BookBytes<uint32_t, 256> kIq3XxsBytes(sdk::kIq3XxsGrid, sdk::kIq3XxsLevels,
                                                kZeroOf<DType::kIQ3_XXS>);
constexpr BookBytes<uint32_t, 512> kIq3SBytes(sdk::kIq3SGrid, sdk::kIq3SLevels,
                                              kZeroOf<DType::kIQ3_S>);

// The 64 quants of the entries that `index` selects, eight of uint64_t or sixteen of uint32_t.
template <int kZero, typename Entry, size_t kEntries, typename F>
RL_INLINE U8x64 BookQuants(const BookBytes<Entry, kEntries>& book, uint64_t signs, F index) {
  const U8x64 levels = JoinWords([&](int i) -> uint64_t {
    if constexpr (sizeof(Entry) == 8) {
      return book.entry[index(i)];
    } else {
      return book.entry[index(2 * i)] | static_cast<uint64_t>(book.entry[index(2 * i + 1)]) << 32;
    }
  });
  return SubtractWhereBit<2 * kZero>(levels, signs);
}

constexpr uint64_t kOnes = 0x0101010101010101;  // a one in each byte

// Bytes of seven signs, each with the eighth that makes their number even.
RL_INLINE uint64_t EvenSigns(uint64_t sevens) {
  uint64_t parity = sevens ^ sevens >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return sevens | (parity & kOnes) << 7;
}
// A byte for each of the four seven bits in the lower 28 bits of a word.
RL_INLINE uint64_t SpreadSevens(uint32_t word) {
  return (word & 0x7F) | (word & 0x7F << 7) << 1 | (word & 0x7F << 14) << 2 |
         static_cast<uint64_t>(word & 0x7F << 21) << 3;
}
// The 64 signs of two groups of 32 weights, from the words of iq2_xxs and iq3_xxs.
RL_INLINE uint64_t SignsOfWords(const uint8_t* first, const uint8_t* second) {
  return EvenSigns(SpreadSevens(LoadU32(first)) | SpreadSevens(LoadU32(second)) << 32);
}

// Twice the scales plus one, which the stored ones stand for.
RL_INLINE uint64_t OddScales(uint64_t scales) { return 2 * scales + kOnes; }
// Pairs() from a byte for each of eight scales.
template <int kZero>
RL_INLINE F32x16 BookPairs(const uint8_t* block, float factor, uint64_t scales) {
  const uint64_t odd = OddScales(scales);
  return SymmetricPairs(Mul(InterleavedBytes(odd, odd), Set1(LoadHalfScalar(block) * factor)),
                        kZero);
}
// Scales() from sixteen nibbles.
template <int kZero>
RL_INLINE ScalePair BookScales(const uint8_t* block, float factor, uint64_t nibbles) {
  constexpr uint64_t kLow = 0x0F * kOnes;
  const F32x16 scales = InterleavedBytes(OddScales(nibbles & kLow), OddScales(nibbles >> 4 & kLow));
  return Symmetric(Mul(scales, Set1(LoadHalfScalar(block) * factor)), kZero);
}
// The upper nibbles of eight bytes that are kDistance apart.
template <size_t kDistance>
RL_INLINE uint64_t UpperNibbles(const uint8_t* p) {
  uint64_t nibbles = 0;
  for (size_t i = 0; i < 8; ++i) nibbles |= static_cast<uint64_t>(p[i * kDistance] >> 4) << (8 * i);
  return nibbles;
}

template <>
struct Decoder<DType::kIQ2_XXS> : BlockType<DType::kIQ2_XXS> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    return BookPairs<kZero>(p, sdk::kIq2Levels.factor, UpperNibbles<8>(p + 9));
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 + 16 * kQuarter;  // of two groups: four indices and a word each
    return BookQuants<kZero>(kIq2XxsBytes, SignsOfWords(q + 4, q + 12),
                             [q](int i) { return q[i / 4 * 8 + i % 4]; });
  }
};

template <>
struct Decoder<DType::kIQ2_XS> : BlockType<DType::kIQ2_XS> {
  RL_INLINE static ScalePair Scales(const uint8_t* p) {
    return BookScales<kZero>(p, sdk::kIq2Levels.factor, LoadU64(p + 66));
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 + 16 * kQuarter;
    const uint64_t four[2] = {LoadU64(q), LoadU64(q + 8)};
    return BookQuants<kZero>(kIq2XsBytes,
                             EvenSigns(UpperSevens(four[0]) | UpperSevens(four[1]) << 32),
                             [&](int i) { return four[i / 4] >> (16 * (i % 4)) & 511; });
  }

 private:
  // The upper seven bits of four numbers of 16 bits, as four bytes.
  RL_INLINE static uint64_t UpperSevens(uint64_t four) {
    uint64_t bytes = four >> 9 & 0x007F007F007F007F;
    bytes = (bytes | bytes >> 8) & 0x0000FFFF0000FFFF;
    return (bytes | bytes >> 16) & 0xFFFFFFFF;
  }
};

template <>
struct Decoder<DType::kIQ2_S> : BlockType<DType::kIQ2_S> {
  RL_INLINE static ScalePair Scales(const uint8_t* p) {
    return BookScales<kZero>(p, sdk::kIq2Levels.factor, LoadU64(p + 74));
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 + 8 * kQuarter;
    const uint32_t high = p[66 + 2 * kQuarter] | static_cast<uint32_t>(p[67 + 2 * kQuarter]) << 8;
    return BookQuants<kZero>(kIq2SBytes, LoadU64(p + 34 + 8 * kQuarter),
                             [&](int i) { return q[i] | (high >> (2 * i) & 3) << 8; });
  }
};

template <>
struct Decoder<DType::kIQ3_XXS> : BlockType<DType::kIQ3_XXS> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    return BookPairs<kZero>(p, sdk::kIq3XxsLevels.factor, UpperNibbles<4>(p + 69));
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 + 16 * kQuarter;
    const uint8_t* words = p + 66 + 8 * kQuarter;
    return BookQuants<kZero>(kIq3XxsBytes, SignsOfWords(words, words + 4),
                             [q](int i) { return q[i]; });
  }
};

template <>
struct Decoder<DType::kIQ3_S> : BlockType<DType::kIQ3_S> {
  RL_INLINE static F32x16 Pairs(const uint8_t* p) {
    uint64_t scales = LoadU32(p + 106);  // nibbles, which become bytes
    scales = (scales | scales << 16) & 0x0000FFFF0000FFFF;
    scales = (scales | scales << 8) & 0x00FF00FF00FF00FF;
    scales = (scales | scales << 4) & 0x0F * kOnes;
    return BookPairs<kZero>(p, sdk::kIq3SLevels.factor, scales);
  }
  template <int kQuarter>
  RL_INLINE static U8x64 Quants(const uint8_t* p) {
    const uint8_t* q = p + 2 + 16 * kQuarter;
    const uint32_t high = p[66 + 2 * kQuarter] | static_cast<uint32_t>(p[67 + 2 * kQuarter]) << 8;
    return BookQuants<kZero>(kIq3SBytes, LoadU64(p + 74 + 8 * kQuarter),
                             [&](int i) { return q[i] | (high >> i & 1) << 8; });
  }
};

}  // namespace
}  // namespace rullama::cpu

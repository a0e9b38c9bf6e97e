// Weights that were rearranged for products: sixteen rows lie together, so that a vector holds four
// bytes of each of them, as they are. A lane then belongs to one row: codes are used as they come
// from memory, for all rows at once, and nothing is folded at the end.
//
// A group of sixteen rows takes as many bytes as before. First the odd bytes of its blocks, where
// the length of a block is no multiple of four (its scale), then the rest in words of four:
//
//   uint8_t odd[blocks][16][kBlockBytes % 4], word[blocks][kWords][16][4]
//
// Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/dequantize_rows.h"
#include "backends/cpu/kernels/weight_panel.h"

namespace rullama::cpu {
namespace {

// How a block is read: scales first, then kPieces pieces of kBundles bundles of kSteps times two
// vectors of codes that share loads. Vector v of step s of a bundle has elements Offset(piece,
// bundle, v) + [4 * s, 4 * s + 4); where kSplit, the two belong to different groups of elements
// with a scale each. WordAt(i) is the word of a block that lies in place i: words lie in the order
// they are read in, as only that keeps the hardware fetching ahead.
template <DType T>
struct PackedBlock;
template <DType T>
constexpr bool kCanBePacked = requires {
  PackedBlock<T>::kBundles;
};

RL_INLINE U8x64 LoadWord(const uint8_t* words, int place) { return LoadBytes(words + place * 64); }

// Blocks of 32: one group, of which the second half of elements lies four words behind the first,
// or in the upper nibbles.
struct PackedBlock32 {
  static constexpr size_t kOddAt = 0;  // where the odd bytes are in a block
  static constexpr int kPieces = 1;
  static constexpr int kBundles = 1;
  static constexpr int kSteps = 4;
  static constexpr bool kSplit = false;
  static constexpr size_t Offset(int /*piece*/, int /*bundle*/, int v) { return v == 0 ? 0 : 16; }
  RL_INLINE static void Scales(const uint8_t* odd, const uint8_t* /*words*/, float* scale,
                               float* /*offset*/) {
    Store(scale, LoadHalf(reinterpret_cast<const uint16_t*>(odd)));
  }
};

template <>
struct PackedBlock<DType::kQ4_0> : PackedBlock32 {
  static constexpr size_t WordAt(size_t place) { return place; }
  template <int kBundle, int kVector>
  RL_INLINE static U8x64 Codes(const uint8_t* words, int /*piece*/, int step) {
    return MoveBits<4 * kVector, 0, 15>(LoadWord(words, step));
  }
};

template <>
struct PackedBlock<DType::kQ8_0> : PackedBlock32 {
  static constexpr size_t WordAt(size_t place) { return place / 2 + place % 2 * 4; }
  template <int kBundle, int kVector>
  RL_INLINE static U8x64 Codes(const uint8_t* words, int /*piece*/, int step) {
    return XorByte(LoadWord(words, 2 * step + kVector), static_cast<uint8_t>(kWideBias));
  }
};

// Scales and minima of Q4_K and Q5_K: two f16 numbers, then eight times 6 bits of either.
template <int kByte = 0>
RL_INLINE void StoreBytesTimes(const U8x64& codes, const F32x16& factor, float* out) {
  if constexpr (kByte < 4) {
    Store(out + kByte * kLanes, Mul(ByteOfLane<kByte>(codes), factor));
    StoreBytesTimes<kByte + 1>(codes, factor, out);
  }
}
RL_INLINE void SixBitScales(const uint8_t* words, float* scale, float* offset) {
  const U8x64 factors = LoadWord(words, 0);
  const U8x64 low = LoadWord(words, 1), min = LoadWord(words, 2), high = LoadWord(words, 3);
  const F32x16 d = HalfOfLane<0>(factors);
  const F32x16 minus_dmin = Sub(Zero(), HalfOfLane<1>(factors));
  StoreBytesTimes(MoveBits<0, 0, 0x3F>(low), d, scale);
  StoreBytesTimes(Or(MoveBits<0, 0, 0x0F>(high), MoveBits<6, 4, 0x30>(low)), d, scale + 4 * kLanes);
  StoreBytesTimes(MoveBits<0, 0, 0x3F>(min), minus_dmin, offset);
  StoreBytesTimes(Or(MoveBits<4, 0, 0x0F>(high), MoveBits<6, 4, 0x30>(min)), minus_dmin,
                  offset + 4 * kLanes);
}

template <>
struct PackedBlock<DType::kQ4_K> {
  static constexpr size_t kOddAt = 0;
  static constexpr int kPieces = 4;
  static constexpr int kBundles = 1;
  static constexpr int kSteps = 8;
  static constexpr bool kSplit = true;
  static constexpr size_t WordAt(size_t place) { return place; }
  static constexpr size_t Offset(int piece, int /*bundle*/, int v) {
    return 64 * static_cast<size_t>(piece) + 32 * static_cast<size_t>(v);
  }
  template <int kBundle, int kVector>
  RL_INLINE static U8x64 Codes(const uint8_t* words, int piece, int step) {
    return MoveBits<4 * kVector, 0, 15>(LoadWord(words, 4 + 8 * piece + step));
  }
  RL_INLINE static void Scales(const uint8_t* /*odd*/, const uint8_t* words, float* scale,
                               float* offset) {
    SixBitScales(words, scale, offset);
  }
};

// Eight words of fifth bits, each before the nibbles that meet it first, then the other nibbles.
template <>
struct PackedBlock<DType::kQ5_K> {
  static constexpr size_t kOddAt = 0;
  static constexpr int kPieces = 1;
  static constexpr int kBundles = 4;
  static constexpr int kSteps = 8;
  static constexpr bool kSplit = true;
  static constexpr size_t WordAt(size_t place) {
    if (place < 4 || place >= 20) return place;
    return place % 2 == 0 ? 4 + (place - 4) / 2 : 12 + (place - 4) / 2;
  }
  static constexpr size_t Offset(int /*piece*/, int bundle, int v) {
    return 64 * static_cast<size_t>(bundle) + 32 * static_cast<size_t>(v);
  }
  template <int kBundle, int kVector>
  RL_INLINE static U8x64 Codes(const uint8_t* words, int /*piece*/, int step) {
    const U8x64 high = LoadWord(words, 4 + 2 * step);
    const U8x64 low = LoadWord(words, kBundle == 0 ? 5 + 2 * step : 12 + 8 * kBundle + step);
    return Or(MoveBits<4 * kVector, 0, 15>(low), MoveBits<2 * kBundle + kVector, 4, 16>(high));
  }
  RL_INLINE static void Scales(const uint8_t* /*odd*/, const uint8_t* words, float* scale,
                               float* offset) {
    SixBitScales(words, scale, offset);
  }
};

// A piece: of the 128 elements of a half, sixteen of each quarter. Their upper bits share four
// words; the nibbles of the first two quarters share eight with those of the others.
template <>
struct PackedBlock<DType::kQ6_K> {
  static constexpr size_t kOddAt = 208;
  static constexpr int kPieces = 4;
  static constexpr int kBundles = 2;
  static constexpr int kSteps = 4;
  static constexpr bool kSplit = true;
  static constexpr size_t WordAt(size_t place) {
    if (place < 4) return 48 + place;
    const size_t piece = (place - 4) / 12, half = piece / 2, sixteen = piece % 2;
    const size_t step = (place - 4) % 12;
    if (step >= 8) return 16 * half + 8 + 4 * sixteen + (step - 8);
    return step % 2 == 0 ? 32 + 8 * half + 4 * sixteen + step / 2
                         : 16 * half + 4 * sixteen + step / 2;
  }
  static constexpr size_t Offset(int piece, int bundle, int v) {
    const auto half = static_cast<size_t>(piece / 2), sixteen = static_cast<size_t>(piece % 2);
    return 128 * half + 16 * sixteen + 32 * static_cast<size_t>(bundle) +
           64 * static_cast<size_t>(v);
  }
  template <int kBundle, int kVector>
  RL_INLINE static U8x64 Codes(const uint8_t* words, int piece, int step) {
    const int first = 4 + 12 * piece;
    const U8x64 high = LoadWord(words, first + 2 * step);
    const U8x64 low = LoadWord(words, first + (kBundle == 0 ? 2 * step + 1 : 8 + step));
    return Or(MoveBits<4 * kVector, 0, 15>(low),
              MoveBits<2 * kBundle + 4 * kVector, 4, 0x30>(high));
  }
  template <int kGroup = 0>
  RL_INLINE static void StoreScales(const uint8_t* words, const F32x16& d, float* scale) {
    if constexpr (kGroup < 16) {
      Store(scale + kGroup * kLanes,
            Mul(SignedByteOfLane<kGroup % 4>(LoadWord(words, kGroup / 4)), d));
      StoreScales<kGroup + 1>(words, d, scale);
    }
  }
  RL_INLINE static void Scales(const uint8_t* odd, const uint8_t* words, float* scale,
                               float* /*offset*/) {
    StoreScales(words, LoadHalf(reinterpret_cast<const uint16_t*>(odd)), scale);
  }
};

template <DType T>
constexpr size_t kOddBytes = Decoder<T>::kBlockBytes % 4;
template <DType T>
constexpr size_t kWords = Decoder<T>::kBlockBytes / 4;
template <DType T>
constexpr size_t kWordsAt = PackedBlock<T>::kOddAt == 0 ? kOddBytes<T> : 0;  // in a block
template <DType T>
constexpr size_t kGroups = kBlockElements<T> / Decoder<T>::kGroup;  // of a block, with a scale each

// Where the parts of a group of rows are.
template <DType T>
struct PackedRows {
  RL_INLINE PackedRows(const void* group, size_t k)
      : odd(static_cast<const uint8_t*>(group)),
        words(odd + k / kBlockElements<T> * kLanes * kOddBytes<T>) {}
  RL_INLINE const uint8_t* Odd(size_t block) const { return odd + block * kLanes * kOddBytes<T>; }
  RL_INLINE const uint8_t* Words(size_t block) const {
    return words + block * kWords<T> * 4 * kLanes;
  }
  const uint8_t* odd;
  const uint8_t* words;
};

// --- To and from rows ----------------------------------------------------------------------------
// Places of the words of a block.
template <DType T>
struct WordPlaces {
  constexpr WordPlaces() : of{} {
    for (size_t place = 0; place < kWords<T>; ++place) of[PackedBlock<T>::WordAt(place)] = place;
  }
  size_t of[kWords<T>];
};

// Bytes of a chunk's words, completed to whole vectors.
template <DType T>
constexpr size_t kStagedBytes = (kChunk / kBlockElements<T> * kWords<T> * 4 + 63) / 64 * 64;

// `blocks` blocks from `block` on, which are at most a chunk.
template <DType T>
void PackBlocks(const uint8_t* rows, size_t row_bytes, size_t block, size_t blocks, uint8_t* odd,
                uint8_t* words) {
  constexpr WordPlaces<T> kPlaces;
  constexpr size_t kBytes = Decoder<T>::kBlockBytes;
  alignas(64) uint8_t staged[kLanes][kStagedBytes<T>];
  for (size_t r = 0; r < kLanes; ++r) {
    const uint8_t* from = rows + r * row_bytes + block * kBytes;
    for (size_t b = 0; b < blocks; ++b, from += kBytes) {
      std::memcpy(odd + (b * kLanes + r) * kOddBytes<T>, from + PackedBlock<T>::kOddAt,
                  kOddBytes<T>);
      std::memcpy(staged[r] + b * kWords<T> * 4, from + kWordsAt<T>, kWords<T> * 4);
    }
  }
  const size_t count = blocks * kWords<T>;
  for (size_t first = 0; first < count; first += 16) {
    U8x64 sixteen[kLanes];
    for (size_t r = 0; r < kLanes; ++r) sixteen[r] = LoadBytes(staged[r] + 4 * first);
    alignas(64) uint8_t transposed[16][64];
    StoreTransposed(sixteen, transposed[0], 64);
    const size_t here = count - first < 16 ? count - first : 16;
    for (size_t i = 0; i < here; ++i) {
      const size_t b = (first + i) / kWords<T>, word = (first + i) % kWords<T>;
      StoreBytes(words + (b * kWords<T> + kPlaces.of[word]) * 64, LoadBytes(transposed[i]));
    }
  }
}

template <DType T>
void PackRows(const void* rows, size_t row_bytes, size_t k, void* out) {
  constexpr size_t kAtATime = kChunk / kBlockElements<T>;
  const PackedRows<T> packed(out, k);
  const size_t blocks = k / kBlockElements<T>;
  for (size_t block = 0; block < blocks; block += kAtATime) {
    const size_t left = blocks - block;
    PackBlocks<T>(static_cast<const uint8_t*>(rows), row_bytes, block,
                  left < kAtATime ? left : kAtATime, const_cast<uint8_t*>(packed.Odd(block)),
                  const_cast<uint8_t*>(packed.Words(block)));
  }
}

template <DType T>
void DequantizePackedRow(const void* group, size_t row, size_t k, size_t first, size_t count,
                         float* out) {
  using P = PackedBlock<T>;
  constexpr size_t kElements = kBlockElements<T>;
  const PackedRows<T> packed(group, k);
  for (size_t done = 0; done < count; done += kElements, out += kElements) {
    const size_t block = (first + done) / kElements;
    uint8_t bytes[kChunkBytes<T>] = {};
    std::memcpy(bytes + P::kOddAt, packed.Odd(block) + row * kOddBytes<T>, kOddBytes<T>);
    for (size_t w = 0; w < kWords<T>; ++w) {
      std::memcpy(bytes + kWordsAt<T> + 4 * P::WordAt(w),
                  packed.Words(block) + (w * kLanes + row) * 4, 4);
    }
    DequantizeChunk<T>(bytes, kElements, out);
  }
}

// --- Panels for many columns ---------------------------------------------------------------------
template <DType T, int kBundle = 0>
RL_INLINE void FillCodes(const uint8_t* words, int piece, uint8_t* codes) {
  using P = PackedBlock<T>;
  if constexpr (kBundle < P::kBundles) {
#pragma GCC unroll 8
    for (int step = 0; step < P::kSteps; ++step) {
      uint8_t* at = codes + 4 * static_cast<size_t>(step) * kLanes;
      StoreBytes(at + P::Offset(piece, kBundle, 0) * kLanes,
                 P::template Codes<kBundle, 0>(words, piece, step));
      StoreBytes(at + P::Offset(piece, kBundle, 1) * kLanes,
                 P::template Codes<kBundle, 1>(words, piece, step));
    }
    FillCodes<T, kBundle + 1>(words, piece, codes);
  }
}

// The panel of a group of rows.
template <DType T, size_t kDepth>
void FillFromPacked(const PackedRows<T>& rows, const Depth& depth, ReadAhead& ahead,
                    CodePanel<kDepth>& panel) {
  constexpr size_t kElements = kBlockElements<T>;
  for (size_t k = depth.begin; k < depth.end; k += kElements) {
    ahead.Fetch(kLanes * Decoder<T>::kBlockBytes / 64 / 2 + 1);
    const size_t block = k / kElements;
    const size_t at = k - depth.begin;
    for (int piece = 0; piece < PackedBlock<T>::kPieces; ++piece) {
      FillCodes<T>(rows.Words(block), piece, panel.codes + at * kLanes);
    }
    float scale[kGroups<T> * kLanes], offset[kGroups<T> * kLanes];
    PackedBlock<T>::Scales(rows.Odd(block), rows.Words(block), scale, offset);
    for (size_t g = 0; g < kElements / 16; ++g) {
      const size_t from = g * 16 / Decoder<T>::kGroup * kLanes;
      const F32x16 factor = Load(scale + from);
      Store(panel.scale + at + g * kLanes, factor);
      Store(panel.offset + at + g * kLanes, Decoder<T>::kHasMin
                                                ? Load(offset + from)
                                                : Symmetric(factor, Decoder<T>::kZero).offset);
    }
  }
}

// Rows [n, n + 16), packed or not.
template <DType T, size_t kDepth>
void FillPanel(const MatMulArgs& args, size_t n, const Depth& depth, ReadAhead& ahead,
               CodePanel<kDepth>& panel) {
  if constexpr (kCanBePacked<T>) {
    if (args.packed) {
      const auto* group = static_cast<const uint8_t*>(args.weights) + n * args.row_bytes;
      return FillFromPacked<T>(PackedRows<T>(group, args.k), depth, ahead, panel);
    }
  }
  Unpack<T>(args, n, depth, ahead, panel);
}

}  // namespace
}  // namespace rullama::cpu

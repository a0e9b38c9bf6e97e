// The SIMD vocabulary (what each name means: simd_portable.h and simd_quarters.h) with AVX2, FMA
// and F16C. Include through simd.h in a file that is compiled for these extensions. Internal
// linkage throughout.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/simd_x86.h"

namespace rullama::cpu {
namespace {

#ifdef __AVXVNNI__
constexpr Isa kIsa = Isa::kAvxVnni;
constexpr bool kWideQuantsAreSigned = false;  // vpdpbusd takes unsigned quants
#else
constexpr Isa kIsa = Isa::kAvx2;
// vpmaddubsw saturates for unsigned quants above 128, so wide quants are split into sign and
// magnitude.
constexpr bool kWideQuantsAreSigned = true;
#endif
// Six int32 accumulators of eight lanes and the temporaries of a dot product fill 16 registers.
constexpr int kTilePanels = 1;
constexpr int kTileBatch = 3;
constexpr int kTileSteps = 4;
constexpr size_t kWeightedVectors = 1;
constexpr int kPackedGemvBatch = 2;
constexpr int kPackedGemvSums = 4;  // two registers each
constexpr int kAttentionSums = 4;

struct F32x16 {
  __m256 lower, upper;
};
struct I32x16 {
  __m256i lower, upper;
};
struct U8x64 {
  __m256i lower, upper;
};
struct F64x16 {
  __m256d v[4];
};

RL_INLINE float HalfBitsToFloat(uint16_t half) { return _cvtsh_ss(half); }
RL_INLINE uint16_t FloatToHalfBits(float value) {
  const __m128i half = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<uint16_t>(_mm_cvtsi128_si32(half));
}

// --- Sixteen floats ------------------------------------------------------------------------------
RL_INLINE F32x16 Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
RL_INLINE F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
RL_INLINE F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
RL_INLINE F32x16 LoadPartial(const float* p, size_t n, float fill = 0.0f) {
  alignas(32) float lanes[16] = {fill, fill, fill, fill, fill, fill, fill, fill,
                                 fill, fill, fill, fill, fill, fill, fill, fill};
  std::memcpy(lanes, p, n * sizeof(float));
  return Load(lanes);
}
RL_INLINE void Store(float* p, const F32x16& a) {
  _mm256_storeu_ps(p, a.lower);
  _mm256_storeu_ps(p + 8, a.upper);
}
RL_INLINE void StorePartial(float* p, size_t n, const F32x16& a) {
  alignas(32) float lanes[16];
  Store(lanes, a);
  std::memcpy(p, lanes, n * sizeof(float));
}
RL_INLINE __m128i Load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
RL_INLINE F32x16 LoadHalf(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load16(p)), _mm256_cvtph_ps(Load16(p + 8))};
}
RL_INLINE __m256 BfloatsToFloats(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
RL_INLINE F32x16 LoadBf16(const uint16_t* p) {
  return {BfloatsToFloats(Load16(p)), BfloatsToFloats(Load16(p + 8))};
}
RL_INLINE void StoreHalf(uint16_t* p, const F32x16& a) {
  auto* out = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(out, _mm256_cvtps_ph(a.lower, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(out + 1, _mm256_cvtps_ph(a.upper, _MM_FROUND_TO_NEAREST_INT));
}

RL_INLINE F32x16 Add(const F32x16& a, const F32x16& b) {
  return {_mm256_add_ps(a.lower, b.lower), _mm256_add_ps(a.upper, b.upper)};
}
RL_INLINE F32x16 Sub(const F32x16& a, const F32x16& b) {
  return {_mm256_sub_ps(a.lower, b.lower), _mm256_sub_ps(a.upper, b.upper)};
}
RL_INLINE F32x16 Mul(const F32x16& a, const F32x16& b) {
  return {_mm256_mul_ps(a.lower, b.lower), _mm256_mul_ps(a.upper, b.upper)};
}
RL_INLINE F32x16 Div(const F32x16& a, const F32x16& b) {
  return {_mm256_div_ps(a.lower, b.lower), _mm256_div_ps(a.upper, b.upper)};
}
RL_INLINE F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return {_mm256_fmadd_ps(a.lower, b.lower, c.lower), _mm256_fmadd_ps(a.upper, b.upper, c.upper)};
}
RL_INLINE F32x16 Max(const F32x16& a, const F32x16& b) {
  return {_mm256_max_ps(a.lower, b.lower), _mm256_max_ps(a.upper, b.upper)};
}
RL_INLINE F32x16 Min(const F32x16& a, const F32x16& b) {
  return {_mm256_min_ps(a.lower, b.lower), _mm256_min_ps(a.upper, b.upper)};
}
RL_INLINE F32x16 Abs(const F32x16& a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lower), _mm256_andnot_ps(sign, a.upper)};
}
RL_INLINE F32x16 SelectLess(const F32x16& a, const F32x16& b, const F32x16& x, const F32x16& y) {
  return {_mm256_blendv_ps(y.lower, x.lower, _mm256_cmp_ps(a.lower, b.lower, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.upper, x.upper, _mm256_cmp_ps(a.upper, b.upper, _CMP_LT_OQ))};
}
RL_INLINE uint32_t EqualMask(const F32x16& a, const F32x16& b) {
  const int lower = _mm256_movemask_ps(_mm256_cmp_ps(a.lower, b.lower, _CMP_EQ_OQ));
  const int upper = _mm256_movemask_ps(_mm256_cmp_ps(a.upper, b.upper, _CMP_EQ_OQ));
  return static_cast<uint32_t>(lower | upper << 8);
}
RL_INLINE float ReduceAdd(const F32x16& a) {
  const __m256 eight = _mm256_add_ps(a.lower, a.upper);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
RL_INLINE float ReduceMax(const F32x16& a) {
  const __m256 eight = _mm256_max_ps(a.lower, a.upper);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// --- Integers ------------------------------------------------------------------------------------
RL_INLINE F32x16 ToFloat(const I32x16& a) {
  return {_mm256_cvtepi32_ps(a.lower), _mm256_cvtepi32_ps(a.upper)};
}
RL_INLINE I32x16 RoundToInt(const F32x16& a) {
  return {_mm256_cvtps_epi32(a.lower), _mm256_cvtps_epi32(a.upper)};
}
RL_INLINE __m256 PowersOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
RL_INLINE F32x16 PowerOfTwo(const I32x16& n) {
  return {PowersOfTwo(n.lower), PowersOfTwo(n.upper)};
}
RL_INLINE I32x16 SubOne(const I32x16& a) {
  const __m256i one = _mm256_set1_epi32(1);
  return {_mm256_sub_epi32(a.lower, one), _mm256_sub_epi32(a.upper, one)};
}
RL_INLINE I32x16 Times256(const I32x16& a) {
  return {_mm256_slli_epi32(a.lower, 8), _mm256_slli_epi32(a.upper, 8)};
}
RL_INLINE I32x16 AddInt(const I32x16& a, const I32x16& b) {
  return {_mm256_add_epi32(a.lower, b.lower), _mm256_add_epi32(a.upper, b.upper)};
}
RL_INLINE I32x16 Set1Int(int32_t a) { return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }
RL_INLINE I32x16 LoadInt(const int32_t* p) {
  const auto* halves = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
RL_INLINE I32x16 ZeroInt() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
RL_INLINE int32_t ReduceAddInt(const I32x16& a) {
  const __m256i eight = _mm256_add_epi32(a.lower, a.upper);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0x55)));
}
RL_INLINE void StoreInt8(int8_t* p, const I32x16& a) {
  // Packing works inside 128-bit lanes: 0-3 8-11 | 4-7 12-15, put in order afterwards.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lower, a.upper), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

// --- Float64 sums --------------------------------------------------------------------------------
RL_INLINE F64x16 ZeroDouble() {
  const __m256d zero = _mm256_setzero_pd();
  return {{zero, zero, zero, zero}};
}
RL_INLINE F64x16 ToDouble(const F32x16& a) {
  return {{_mm256_cvtps_pd(_mm256_castps256_ps128(a.lower)),
           _mm256_cvtps_pd(_mm256_extractf128_ps(a.lower, 1)),
           _mm256_cvtps_pd(_mm256_castps256_ps128(a.upper)),
           _mm256_cvtps_pd(_mm256_extractf128_ps(a.upper, 1))}};
}
RL_INLINE F64x16 AddDouble(F64x16 acc, const F32x16& a) {
  const F64x16 x = ToDouble(a);
  for (int i = 0; i < 4; ++i) acc.v[i] = _mm256_add_pd(acc.v[i], x.v[i]);
  return acc;
}
RL_INLINE F64x16 AddSquareDouble(F64x16 acc, const F32x16& a) {
  const F64x16 x = ToDouble(a);
  for (int i = 0; i < 4; ++i) acc.v[i] = _mm256_fmadd_pd(x.v[i], x.v[i], acc.v[i]);
  return acc;
}
RL_INLINE double ReduceAddDouble(const F64x16& a) {
  const __m256d four = _mm256_add_pd(_mm256_add_pd(a.v[0], a.v[2]), _mm256_add_pd(a.v[1], a.v[3]));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// --- 64 bytes of a weight row --------------------------------------------------------------------
RL_INLINE __m256i Load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
RL_INLINE U8x64 LoadBytes(const uint8_t* p) { return {Load32(p), Load32(p + 32)}; }
RL_INLINE void StoreBytes(uint8_t* p, const U8x64& a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lower);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.upper);
}
RL_INLINE U8x64 LoadBytes32x2(const uint8_t* lower, const uint8_t* upper) {
  return {Load32(lower), Load32(upper)};
}
template <typename F>
RL_INLINE __m256i JoinFour(F word, int first) {
  return _mm256_set_epi64x(
      static_cast<int64_t>(word(first + 3)), static_cast<int64_t>(word(first + 2)),
      static_cast<int64_t>(word(first + 1)), static_cast<int64_t>(word(first)));
}
template <typename F>
RL_INLINE U8x64 JoinWords(F word) {
  return {JoinFour(word, 0), JoinFour(word, 4)};
}
template <int kLower, int kUpper>
RL_INLINE U8x64 BroadcastShift(const uint8_t* p, uint8_t mask) {
  const __m256i bytes = Load32(p);
  const __m256i kept = _mm256_set1_epi8(static_cast<char>(mask));
  // The mask also clears the bits that crossed a byte.
  return {_mm256_and_si256(_mm256_srli_epi16(bytes, kLower), kept),
          _mm256_and_si256(_mm256_srli_epi16(bytes, kUpper), kept)};
}
RL_INLINE __m256i Nibbles32(const uint8_t* p) {
  const __m128i bytes = Load16(p);
  const __m256i both =
      _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
  return _mm256_and_si256(both, _mm256_set1_epi8(15));
}
RL_INLINE U8x64 Nibbles16x2(const uint8_t* lower, const uint8_t* upper) {
  return {Nibbles32(lower), Nibbles32(upper)};
}
RL_INLINE U8x64 Or(const U8x64& a, const U8x64& b) {
  return {_mm256_or_si256(a.lower, b.lower), _mm256_or_si256(a.upper, b.upper)};
}
// Byte i: a | kValue if (bytes & bits) == bits, else a.
template <uint8_t kValue>
RL_INLINE __m256i OrWhereSet(__m256i a, __m256i bytes, __m256i bits) {
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
  return _mm256_or_si256(a, _mm256_and_si256(set, _mm256_set1_epi8(kValue)));
}
template <uint8_t kValue>
RL_INLINE __m256i OrWhereBit32(__m256i a, uint32_t bits) {
  // Byte i of the mask is byte i / 8 of `bits`; its bit i % 8 is tested.
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(bits)),
      _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0));
  return OrWhereSet<kValue>(a, spread,
                            _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u)));
}
template <uint8_t kValue>
RL_INLINE U8x64 OrWhereBit(const U8x64& a, uint64_t bits) {
  return {OrWhereBit32<kValue>(a.lower, static_cast<uint32_t>(bits)),
          OrWhereBit32<kValue>(a.upper, static_cast<uint32_t>(bits >> 32))};
}
RL_INLINE __m256i SetWhereBit32(uint32_t bits) {
  return OrWhereBit32<0xFF>(_mm256_setzero_si256(), bits);
}
template <uint8_t kFrom>
RL_INLINE U8x64 SubtractWhereBit(const U8x64& a, uint64_t bits) {
  const __m256i from = _mm256_set1_epi8(static_cast<char>(kFrom));
  return {_mm256_blendv_epi8(a.lower, _mm256_sub_epi8(from, a.lower),
                             SetWhereBit32(static_cast<uint32_t>(bits))),
          _mm256_blendv_epi8(a.upper, _mm256_sub_epi8(from, a.upper),
                             SetWhereBit32(static_cast<uint32_t>(bits >> 32)))};
}
template <int kLower, int kUpper, uint8_t kValue>
RL_INLINE U8x64 OrWhereByteBit(const U8x64& a, const uint8_t* p) {
  const __m256i bytes = Load32(p);
  return {OrWhereSet<kValue>(a.lower, bytes, _mm256_set1_epi8(static_cast<char>(1u << kLower))),
          OrWhereSet<kValue>(a.upper, bytes, _mm256_set1_epi8(static_cast<char>(1u << kUpper)))};
}
RL_INLINE U8x64 Lookup16(const U8x64& a, const uint8_t* table) {
  const __m256i entries = _mm256_broadcastsi128_si256(Load16(table));
  return {_mm256_shuffle_epi8(entries, a.lower), _mm256_shuffle_epi8(entries, a.upper)};
}
RL_INLINE U8x64 XorByte(const U8x64& a, uint8_t b) {
  const __m256i bytes = _mm256_set1_epi8(static_cast<char>(b));
  return {_mm256_xor_si256(a.lower, bytes), _mm256_xor_si256(a.upper, bytes)};
}
template <int kFrom, int kTo, uint8_t kMask>
RL_INLINE __m256i MoveBits32(__m256i a) {
  const __m256i moved = kFrom < kTo   ? _mm256_slli_epi16(a, kTo - kFrom)
                        : kFrom > kTo ? _mm256_srli_epi16(a, kFrom - kTo)
                                      : a;
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(kMask)));
}
template <int kFrom, int kTo, uint8_t kMask>
RL_INLINE U8x64 MoveBits(const U8x64& a) {
  return {MoveBits32<kFrom, kTo, kMask>(a.lower), MoveBits32<kFrom, kTo, kMask>(a.upper)};
}
template <int kByte>
RL_INLINE F32x16 ByteOfLane(const U8x64& a) {
  const __m256i mask = _mm256_set1_epi32(0xFF);
  return ToFloat({_mm256_and_si256(_mm256_srli_epi32(a.lower, 8 * kByte), mask),
                  _mm256_and_si256(_mm256_srli_epi32(a.upper, 8 * kByte), mask)});
}
template <int kByte>
RL_INLINE F32x16 SignedByteOfLane(const U8x64& a) {
  constexpr int kUp = 24 - 8 * kByte;
  return ToFloat({_mm256_srai_epi32(_mm256_slli_epi32(a.lower, kUp), 24),
                  _mm256_srai_epi32(_mm256_slli_epi32(a.upper, kUp), 24)});
}
template <int kHalf>
RL_INLINE __m256 HalfOfEight(__m256i a) {
  const __m256i half =
      _mm256_and_si256(_mm256_srli_epi32(a, 16 * kHalf), _mm256_set1_epi32(0xFFFF));
  // Packing works inside 128-bit lanes.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
template <int kHalf>
RL_INLINE F32x16 HalfOfLane(const U8x64& a) {
  return {HalfOfEight<kHalf>(a.lower), HalfOfEight<kHalf>(a.upper)};
}

// Lane i: acc + the sum of four products.
template <bool kWide>
RL_INLINE __m256i AddProducts(__m256i acc, __m256i quants, __m256i x) {
#ifdef __AVXVNNI__
  return _mm256_dpbusd_avx_epi32(acc, quants, x);
#else
  // Pairs of products fit int16: 128 * 127 * 2.
  const __m256i pairs =
      kWide ? _mm256_maddubs_epi16(_mm256_sign_epi8(quants, quants), _mm256_sign_epi8(x, quants))
            : _mm256_maddubs_epi16(quants, x);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
template <bool kWide>
RL_INLINE I32x16 Dot(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  return {AddProducts<kWide>(acc.lower, quants.lower, Load32(x)),
          AddProducts<kWide>(acc.upper, quants.upper, Load32(x + 32))};
}
template <bool kWide>
RL_INLINE I32x16 DotBroadcast(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  const __m256i all = _mm256_set1_epi32(four);
  return {AddProducts<kWide>(acc.lower, quants.lower, all),
          AddProducts<kWide>(acc.upper, quants.upper, all)};
}
template <bool kWide>
RL_INLINE I32x16 DotOnce(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  return DotBroadcast<kWide>(acc, quants, x);
}
template <int kQuarter>
RL_INLINE F32x16 SpreadScales(const F32x16& scales) {
  const __m256 half = kQuarter < 2 ? scales.lower : scales.upper;
  constexpr int kFirst = 4 * (kQuarter % 2);
  return {
      _mm256_permutevar8x32_ps(half, _mm256_set_epi32(kFirst + 1, kFirst + 1, kFirst + 1,
                                                      kFirst + 1, kFirst, kFirst, kFirst, kFirst)),
      _mm256_permutevar8x32_ps(
          half, _mm256_set_epi32(kFirst + 3, kFirst + 3, kFirst + 3, kFirst + 3, kFirst + 2,
                                 kFirst + 2, kFirst + 2, kFirst + 2))};
}
template <int kQuarter>
RL_INLINE F32x16 SpreadEven(const F32x16& pairs) {
  const __m256 half = kQuarter < 2 ? pairs.lower : pairs.upper;
  constexpr int kFirst = 4 * (kQuarter % 2);
  return {_mm256_permutevar8x32_ps(half, _mm256_set1_epi32(kFirst)),
          _mm256_permutevar8x32_ps(half, _mm256_set1_epi32(kFirst + 2))};
}
RL_INLINE F32x16 RepeatEven(const F32x16& a) {
  return {_mm256_moveldup_ps(a.lower), _mm256_moveldup_ps(a.upper)};
}
RL_INLINE F32x16 RepeatOdd(const F32x16& a) {
  return {_mm256_movehdup_ps(a.lower), _mm256_movehdup_ps(a.upper)};
}
RL_INLINE F32x16 KeepOdd(const F32x16& a) {
  const __m256 zero = _mm256_setzero_ps();
  return {_mm256_blend_ps(zero, a.lower, 0xAA), _mm256_blend_ps(zero, a.upper, 0xAA)};
}
RL_INLINE F32x16 Interleave(const float* even, const float* odd) {
  const __m256 a = _mm256_loadu_ps(even), b = _mm256_loadu_ps(odd);
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
RL_INLINE F32x16 Pairs(__m256 a) {
  return {_mm256_permutevar8x32_ps(a, _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0)),
          _mm256_permutevar8x32_ps(a, _mm256_set_epi32(7, 7, 6, 6, 5, 5, 4, 4))};
}
RL_INLINE F32x16 LoadPairs(const float* p) { return Pairs(_mm256_loadu_ps(p)); }
RL_INLINE F32x16 InterleavedBytes(uint64_t even, uint64_t odd) {
  const __m128i bytes = _mm_unpacklo_epi8(_mm_cvtsi64_si128(static_cast<int64_t>(even)),
                                          _mm_cvtsi64_si128(static_cast<int64_t>(odd)));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}
RL_INLINE F32x16 SignedBytes16(const uint8_t* p) {
  const __m128i bytes = Load16(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
// Bits [shift, shift + 4) of 16 bytes.
RL_INLINE F32x16 Nibbles16(const uint8_t* p, int shift) {
  const __m128i shifted = _mm_srl_epi16(Load16(p), _mm_cvtsi32_si128(shift));
  const __m128i codes = _mm_and_si128(shifted, _mm_set1_epi8(15));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)))};
}
template <size_t kStride>
RL_INLINE F32x16 HalfPairs(const uint8_t* p) {
  const __m128i halves =
      _mm_set_epi64x(FourHalves<kStride>(p + 4 * kStride), FourHalves<kStride>(p));
  return Pairs(_mm256_cvtph_ps(halves));
}
template <size_t kStride>
RL_INLINE F32x16 HalfTwos(const uint8_t* p) {
  const __m128i lower = _mm_set_epi64x(TwoTwos<kStride>(p + 2 * kStride), TwoTwos<kStride>(p));
  const __m128i upper =
      _mm_set_epi64x(TwoTwos<kStride>(p + 6 * kStride), TwoTwos<kStride>(p + 4 * kStride));
  return {_mm256_cvtph_ps(lower), _mm256_cvtph_ps(upper)};
}
RL_INLINE F32x16 RepeatHalves(uint32_t two) {
  const __m256 floats = _mm256_cvtph_ps(_mm_set1_epi32(static_cast<int32_t>(two)));
  return {floats, floats};
}

// Transposes eight rows of eight dwords; row j of the result goes to out + j * stride.
RL_INLINE void StoreTransposed8(const __m256i r[8], uint8_t* out, size_t stride) {
  __m256i quad[2][4];  // [rows / 4][column % 4], 128-bit lane = column / 4
  for (int i = 0; i < 2; ++i) {
    const __m256i a = _mm256_unpacklo_epi32(r[4 * i], r[4 * i + 1]);
    const __m256i b = _mm256_unpacklo_epi32(r[4 * i + 2], r[4 * i + 3]);
    const __m256i c = _mm256_unpackhi_epi32(r[4 * i], r[4 * i + 1]);
    const __m256i d = _mm256_unpackhi_epi32(r[4 * i + 2], r[4 * i + 3]);
    quad[i][0] = _mm256_unpacklo_epi64(a, b);
    quad[i][1] = _mm256_unpackhi_epi64(a, b);
    quad[i][2] = _mm256_unpacklo_epi64(c, d);
    quad[i][3] = _mm256_unpackhi_epi64(c, d);
  }
  for (size_t j = 0; j < 4; ++j) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + j * stride),
                        _mm256_permute2x128_si256(quad[0][j], quad[1][j], 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + (j + 4) * stride),
                        _mm256_permute2x128_si256(quad[0][j], quad[1][j], 0x31));
  }
}
RL_INLINE void StoreTransposed(const U8x64 rows[16], uint8_t* out, size_t stride) {
  for (size_t i = 0; i < 16; i += 8) {
    __m256i lower[8], upper[8];
    for (size_t r = 0; r < 8; ++r) {
      lower[r] = rows[i + r].lower;
      upper[r] = rows[i + r].upper;
    }
    StoreTransposed8(lower, out + 4 * i, stride);
    StoreTransposed8(upper, out + 4 * i + 8 * stride, stride);
  }
}
RL_INLINE U8x64 AsBytes(const F32x16& a) {
  return {_mm256_castps_si256(a.lower), _mm256_castps_si256(a.upper)};
}
RL_INLINE void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
RL_INLINE void PrefetchFar(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// --- Products of 16-bit words; levels with VNNI. What the names mean: simd_avx512.h --------------
#ifdef __AVXVNNI__
#define RULLAMA_WORD_DOTS
constexpr int kWordPanels = 1;
constexpr int kWordBatch = 6;
RL_INLINE F32x16 Sqrt(const F32x16& a) {
  return {_mm256_sqrt_ps(a.lower), _mm256_sqrt_ps(a.upper)};
}
RL_INLINE void StoreWords(int16_t* p, const I32x16& a) {
  // Packing works inside 128-bit lanes.
  const __m256i words = _mm256_packs_epi32(a.lower, a.upper);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xD8));
}
RL_INLINE U8x64 PairWords(const I32x16& a, const I32x16& b) {
  return {_mm256_blend_epi16(a.lower, _mm256_slli_epi32(b.lower, 16), 0xAA),
          _mm256_blend_epi16(a.upper, _mm256_slli_epi32(b.upper, 16), 0xAA)};
}
RL_INLINE I32x16 DotWords(const I32x16& acc, const U8x64& pairs, const int16_t* x) {
  int32_t two;
  std::memcpy(&two, x, 4);
  const __m256i both = _mm256_set1_epi32(two);
  return {_mm256_dpwssd_avx_epi32(acc.lower, pairs.lower, both),
          _mm256_dpwssd_avx_epi32(acc.upper, pairs.upper, both)};
}
#endif

}  // namespace
}  // namespace rullama::cpu

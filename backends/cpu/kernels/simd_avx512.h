// The SIMD vocabulary (what each name means: simd_portable.h and simd_quarters.h) with AVX-512
// F/BW/DQ/VL, and VNNI and AMX where the file is compiled for them. Include through simd.h.
// Internal linkage throughout.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/simd_x86.h"

namespace rullama::cpu {
namespace {

#ifdef __AVX512VNNI__
constexpr Isa kIsa = Isa::kAvx512Vnni;
#else
constexpr Isa kIsa = Isa::kAvx512;
#endif
#ifdef __AVX512VNNI__
constexpr bool kWideQuantsAreSigned = false;  // vpdpbusd takes unsigned quants
#else
constexpr bool kWideQuantsAreSigned = true;  // as in simd_avx2.h
#endif
// 12 int32 and 12 float accumulators, two weight vectors and a few temporaries fill 32 registers.
constexpr int kTilePanels = 2;
constexpr int kTileBatch = 6;
constexpr int kTileSteps = 4;
constexpr size_t kWeightedVectors = 4;
// Packed GEMV: most batch rows per pass, and the int32 accumulators that leave registers for scales
// and operands.
constexpr int kPackedGemvBatch = 8;
constexpr int kPackedGemvSums = 16;
constexpr int kAttentionSums = 16;

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct U8x64 {
  __m512i v;
};
struct F64x16 {
  __m512d lower, upper;
};

RL_INLINE float HalfBitsToFloat(uint16_t half) { return _cvtsh_ss(half); }
RL_INLINE uint16_t FloatToHalfBits(float value) {
  const __m128i half = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<uint16_t>(_mm_cvtsi128_si32(half));
}

// --- Sixteen floats ------------------------------------------------------------------------------
RL_INLINE __mmask16 FirstLanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }

RL_INLINE F32x16 Set1(float x) { return {_mm512_set1_ps(x)}; }
RL_INLINE F32x16 Zero() { return {_mm512_setzero_ps()}; }
RL_INLINE F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
RL_INLINE F32x16 LoadPartial(const float* p, size_t n, float fill = 0.0f) {
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), FirstLanes(n), p)};
}
RL_INLINE void Store(float* p, const F32x16& a) { _mm512_storeu_ps(p, a.v); }
RL_INLINE void StorePartial(float* p, size_t n, const F32x16& a) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), a.v);
}
RL_INLINE F32x16 LoadHalf(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
RL_INLINE F32x16 LoadBf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
RL_INLINE void StoreHalf(uint16_t* p, const F32x16& a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

RL_INLINE F32x16 Add(const F32x16& a, const F32x16& b) { return {_mm512_add_ps(a.v, b.v)}; }
RL_INLINE F32x16 Sub(const F32x16& a, const F32x16& b) { return {_mm512_sub_ps(a.v, b.v)}; }
RL_INLINE F32x16 Mul(const F32x16& a, const F32x16& b) { return {_mm512_mul_ps(a.v, b.v)}; }
RL_INLINE F32x16 Div(const F32x16& a, const F32x16& b) { return {_mm512_div_ps(a.v, b.v)}; }
RL_INLINE F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
RL_INLINE F32x16 Max(const F32x16& a, const F32x16& b) { return {_mm512_max_ps(a.v, b.v)}; }
RL_INLINE F32x16 Min(const F32x16& a, const F32x16& b) { return {_mm512_min_ps(a.v, b.v)}; }
RL_INLINE F32x16 Abs(const F32x16& a) { return {_mm512_abs_ps(a.v)}; }
RL_INLINE F32x16 SelectLess(const F32x16& a, const F32x16& b, const F32x16& x, const F32x16& y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
RL_INLINE uint32_t EqualMask(const F32x16& a, const F32x16& b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ);
}
RL_INLINE __m256 UpperHalf(__m512 a) { return _mm512_extractf32x8_ps(a, 1); }
RL_INLINE float ReduceAdd(const F32x16& a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), UpperHalf(a.v));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
RL_INLINE float ReduceMax(const F32x16& a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), UpperHalf(a.v));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// --- Integers ------------------------------------------------------------------------------------
RL_INLINE F32x16 ToFloat(const I32x16& a) { return {_mm512_cvtepi32_ps(a.v)}; }
RL_INLINE I32x16 RoundToInt(const F32x16& a) { return {_mm512_cvtps_epi32(a.v)}; }
RL_INLINE F32x16 PowerOfTwo(const I32x16& n) {
  const __m512i exponent = _mm512_add_epi32(n.v, _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}
RL_INLINE I32x16 SubOne(const I32x16& a) { return {_mm512_sub_epi32(a.v, _mm512_set1_epi32(1))}; }
RL_INLINE I32x16 Times256(const I32x16& a) { return {_mm512_slli_epi32(a.v, 8)}; }
RL_INLINE I32x16 AddInt(const I32x16& a, const I32x16& b) { return {_mm512_add_epi32(a.v, b.v)}; }
RL_INLINE I32x16 Set1Int(int32_t a) { return {_mm512_set1_epi32(a)}; }
RL_INLINE I32x16 LoadInt(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
RL_INLINE I32x16 ZeroInt() { return {_mm512_setzero_si512()}; }
RL_INLINE int32_t ReduceAddInt(const I32x16& a) { return _mm512_reduce_add_epi32(a.v); }
RL_INLINE void StoreInt8(int8_t* p, const I32x16& a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

// --- Float64 sums --------------------------------------------------------------------------------
RL_INLINE F64x16 ZeroDouble() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
RL_INLINE __m512d LowerDoubles(__m512 a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
RL_INLINE __m512d UpperDoubles(__m512 a) { return _mm512_cvtps_pd(UpperHalf(a)); }
RL_INLINE F64x16 AddDouble(const F64x16& acc, const F32x16& a) {
  return {_mm512_add_pd(acc.lower, LowerDoubles(a.v)), _mm512_add_pd(acc.upper, UpperDoubles(a.v))};
}
RL_INLINE F64x16 AddSquareDouble(const F64x16& acc, const F32x16& a) {
  const __m512d lower = LowerDoubles(a.v), upper = UpperDoubles(a.v);
  return {_mm512_fmadd_pd(lower, lower, acc.lower), _mm512_fmadd_pd(upper, upper, acc.upper)};
}
RL_INLINE double ReduceAddDouble(const F64x16& a) {
  const __m512d eight = _mm512_add_pd(a.lower, a.upper);
  const __m256d four =
      _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// --- 64 bytes of a weight row --------------------------------------------------------------------
RL_INLINE U8x64 LoadBytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
RL_INLINE void StoreBytes(uint8_t* p, const U8x64& a) { _mm512_storeu_si512(p, a.v); }
RL_INLINE __m256i Load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
RL_INLINE U8x64 LoadBytes32x2(const uint8_t* lower, const uint8_t* upper) {
  return {_mm512_inserti64x4(_mm512_castsi256_si512(Load32(lower)), Load32(upper), 1)};
}
template <typename F>
RL_INLINE U8x64 JoinWords(F word) {
  const auto at = [&](int i) { return static_cast<int64_t>(word(i)); };
  return {_mm512_set_epi64(at(7), at(6), at(5), at(4), at(3), at(2), at(1), at(0))};
}
// One value in the lower 32 bytes, another in the upper 32 bytes.
RL_INLINE __m512i Halves64(int64_t lower, int64_t upper) {
  return _mm512_set_epi64(upper, upper, upper, upper, lower, lower, lower, lower);
}
template <int kLower, int kUpper>
RL_INLINE U8x64 BroadcastShift(const uint8_t* p, uint8_t mask) {
  __m512i bytes = _mm512_broadcast_i64x4(Load32(p));
  // The mask also clears the bits that crossed a byte.
  bytes = _mm512_srlv_epi64(bytes, Halves64(kLower, kUpper));
  return {_mm512_and_si512(bytes, _mm512_set1_epi8(static_cast<char>(mask)))};
}
RL_INLINE U8x64 Nibbles16x2(const uint8_t* lower, const uint8_t* upper) {
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(upper));
  const __m512i doubled = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(a)),
                                             _mm256_broadcastsi128_si256(b), 1);
  const __m512i shifted = _mm512_srlv_epi64(doubled, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0));
  return {_mm512_and_si512(shifted, _mm512_set1_epi8(15))};
}
RL_INLINE U8x64 Or(const U8x64& a, const U8x64& b) { return {_mm512_or_si512(a.v, b.v)}; }
template <uint8_t kValue>
RL_INLINE U8x64 OrWhereBit(const U8x64& a, uint64_t bits) {
  // The bits of kValue are clear in a, so addition equals or.
  return {_mm512_mask_add_epi8(a.v, bits, a.v, _mm512_set1_epi8(kValue))};
}
template <uint8_t kFrom>
RL_INLINE U8x64 SubtractWhereBit(const U8x64& a, uint64_t bits) {
  return {_mm512_mask_sub_epi8(a.v, bits, _mm512_set1_epi8(static_cast<char>(kFrom)), a.v)};
}
template <int kLower, int kUpper, uint8_t kValue>
RL_INLINE U8x64 OrWhereByteBit(const U8x64& a, const uint8_t* p) {
  constexpr int64_t kEveryByte = 0x0101010101010101;
  const __m512i wanted =
      Halves64(static_cast<int64_t>(static_cast<uint64_t>(kEveryByte) << kLower),
               static_cast<int64_t>(static_cast<uint64_t>(kEveryByte) << kUpper));
  return OrWhereBit<kValue>(a, _mm512_test_epi8_mask(_mm512_broadcast_i64x4(Load32(p)), wanted));
}
RL_INLINE U8x64 Lookup16(const U8x64& a, const uint8_t* table) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), a.v)};
}
RL_INLINE U8x64 XorByte(const U8x64& a, uint8_t b) {
  return {_mm512_xor_si512(a.v, _mm512_set1_epi8(static_cast<char>(b)))};
}
template <int kFrom, int kTo, uint8_t kMask>
RL_INLINE U8x64 MoveBits(const U8x64& a) {
  const __m512i moved = kFrom < kTo   ? _mm512_slli_epi16(a.v, kTo - kFrom)
                        : kFrom > kTo ? _mm512_srli_epi16(a.v, kFrom - kTo)
                                      : a.v;
  return {_mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(kMask)))};
}
template <int kByte>
RL_INLINE F32x16 ByteOfLane(const U8x64& a) {
  const __m512i shifted = kByte == 0 ? a.v : _mm512_srli_epi32(a.v, 8 * kByte);
  const __m512i byte = kByte == 3 ? shifted : _mm512_and_si512(shifted, _mm512_set1_epi32(0xFF));
  return {_mm512_cvtepi32_ps(byte)};
}
template <int kByte>
RL_INLINE F32x16 SignedByteOfLane(const U8x64& a) {
  const __m512i top = kByte == 3 ? a.v : _mm512_slli_epi32(a.v, 24 - 8 * kByte);
  return {_mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24))};
}
template <int kHalf>
RL_INLINE F32x16 HalfOfLane(const U8x64& a) {
  const __m512i half = kHalf == 0 ? a.v : _mm512_srli_epi32(a.v, 16);
  return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(half))};
}
// --- bf16 in upper halves of lanes; for AMX ------------------------------------------------------
// Adds half a unit of the upper 16 bits, so that truncation then rounds to nearest. NaN payloads
// may overflow to infinity or change sign.
RL_INLINE F32x16 RoundUpperHalves(const F32x16& a) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), half))};
}
RL_INLINE void StoreUpperHalves(uint16_t* p, const F32x16& a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(a.v), 16)));
}
// Per lane: the upper half of a in the lower 16 bits, the upper half of b in the upper 16 bits.
RL_INLINE U8x64 InterleaveUpperHalves(const F32x16& a, const F32x16& b) {
  return {_mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(_mm512_castps_si512(a.v), 16),
                                  _mm512_castps_si512(b.v))};
}

// --- Products ------------------------------------------------------------------------------------
// Lane i: acc + the sum of four products.
template <bool kWide>
RL_INLINE I32x16 AddProducts(const I32x16& acc, const U8x64& quants, __m512i x) {
#ifdef __AVX512VNNI__
  return {_mm512_dpbusd_epi32(acc.v, quants.v, x)};
#else
  __m512i factors = quants.v;
  if constexpr (kWide) {
    x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(quants.v), _mm512_setzero_si512(), x);
    factors = _mm512_abs_epi8(quants.v);
  }
  const __m512i pairs = _mm512_maddubs_epi16(factors, x);
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
#endif
}
template <bool kWide>
RL_INLINE I32x16 Dot(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  return AddProducts<kWide>(acc, quants, _mm512_loadu_si512(x));
}
template <bool kWide>
RL_INLINE I32x16 DotBroadcast(const I32x16& acc, const U8x64& quants, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return AddProducts<kWide>(acc, quants, _mm512_set1_epi32(four));
}
// Inline assembly, because GCC 12 emits a separate broadcast instead of the broadcast memory
// operand.
template <bool kWide>
RL_INLINE I32x16 DotOnce(I32x16 acc, const U8x64& quants, const int8_t* x) {
#ifdef __AVX512VNNI__
  using Four = const int8_t[4];
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(acc.v)
      : "v"(quants.v), "m"(*reinterpret_cast<Four*>(x)));
  return acc;
#else
  return DotBroadcast<kWide>(acc, quants, x);
#endif
}
template <int kQuarter>
RL_INLINE F32x16 SpreadScales(const F32x16& scales) {
  constexpr int kFirst = 4 * kQuarter;
  const __m512i index = _mm512_set_epi32(kFirst + 3, kFirst + 3, kFirst + 3, kFirst + 3, kFirst + 2,
                                         kFirst + 2, kFirst + 2, kFirst + 2, kFirst + 1, kFirst + 1,
                                         kFirst + 1, kFirst + 1, kFirst, kFirst, kFirst, kFirst);
  return {_mm512_permutexvar_ps(index, scales.v)};
}
template <int kQuarter>
RL_INLINE F32x16 SpreadEven(const F32x16& pairs) {
  constexpr int kFirst = 4 * kQuarter;
  constexpr int kSecond = kFirst + 2;
  const __m512i index =
      _mm512_set_epi32(kSecond, kSecond, kSecond, kSecond, kSecond, kSecond, kSecond, kSecond,
                       kFirst, kFirst, kFirst, kFirst, kFirst, kFirst, kFirst, kFirst);
  return {_mm512_permutexvar_ps(index, pairs.v)};
}
RL_INLINE F32x16 RepeatEven(const F32x16& a) { return {_mm512_moveldup_ps(a.v)}; }
RL_INLINE F32x16 RepeatOdd(const F32x16& a) { return {_mm512_movehdup_ps(a.v)}; }
RL_INLINE F32x16 KeepOdd(const F32x16& a) { return {_mm512_maskz_mov_ps(0xAAAA, a.v)}; }
RL_INLINE F32x16 Interleave(const float* even, const float* odd) {
  const __m512i index = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return {_mm512_permutex2var_ps(_mm512_castps256_ps512(_mm256_loadu_ps(even)), index,
                                 _mm512_castps256_ps512(_mm256_loadu_ps(odd)))};
}
RL_INLINE __m512 Pairs(__m256 a) {
  const __m512i index = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(a));
}
RL_INLINE F32x16 LoadPairs(const float* p) { return {Pairs(_mm256_loadu_ps(p))}; }
RL_INLINE F32x16 InterleavedBytes(uint64_t even, uint64_t odd) {
  const __m128i bytes = _mm_unpacklo_epi8(_mm_cvtsi64_si128(static_cast<int64_t>(even)),
                                          _mm_cvtsi64_si128(static_cast<int64_t>(odd)));
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}
RL_INLINE F32x16 SignedBytes16(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
// Bits [shift, shift + 4) of 16 bytes.
RL_INLINE F32x16 Nibbles16(const uint8_t* p, int shift) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i codes =
      _mm_and_si128(_mm_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), _mm_set1_epi8(15));
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes))};
}
template <size_t kStride>
RL_INLINE F32x16 HalfPairs(const uint8_t* p) {
  const __m128i halves =
      _mm_set_epi64x(FourHalves<kStride>(p + 4 * kStride), FourHalves<kStride>(p));
  return {Pairs(_mm256_cvtph_ps(halves))};
}
template <size_t kStride>
RL_INLINE F32x16 HalfTwos(const uint8_t* p) {
  return {_mm512_cvtph_ps(
      _mm256_set_epi64x(TwoTwos<kStride>(p + 6 * kStride), TwoTwos<kStride>(p + 4 * kStride),
                        TwoTwos<kStride>(p + 2 * kStride), TwoTwos<kStride>(p)))};
}
RL_INLINE F32x16 RepeatHalves(uint32_t two) {
  return {_mm512_cvtph_ps(_mm256_set1_epi32(static_cast<int32_t>(two)))};
}

// Transposes the 4x4 blocks of dwords inside the 128-bit lanes of four rows.
RL_INLINE void TransposeLanes(const U8x64* rows, __m512i out[4]) {
  const __m512i a = _mm512_unpacklo_epi32(rows[0].v, rows[1].v);
  const __m512i b = _mm512_unpacklo_epi32(rows[2].v, rows[3].v);
  const __m512i c = _mm512_unpackhi_epi32(rows[0].v, rows[1].v);
  const __m512i d = _mm512_unpackhi_epi32(rows[2].v, rows[3].v);
  out[0] = _mm512_unpacklo_epi64(a, b);
  out[1] = _mm512_unpackhi_epi64(a, b);
  out[2] = _mm512_unpacklo_epi64(c, d);
  out[3] = _mm512_unpackhi_epi64(c, d);
}
RL_INLINE void StoreTransposed(const U8x64 rows[16], uint8_t* out, size_t stride) {
  __m512i quad[4][4];  // [rows / 4][column % 4], 128-bit lane = column / 4
  for (int i = 0; i < 4; ++i) TransposeLanes(rows + 4 * i, quad[i]);
  for (size_t j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(quad[0][j], quad[1][j], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(quad[0][j], quad[1][j], 0xEE);
    const __m512i low23 = _mm512_shuffle_i32x4(quad[2][j], quad[3][j], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(quad[2][j], quad[3][j], 0xEE);
    _mm512_storeu_si512(out + j * stride, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(out + (j + 4) * stride, _mm512_shuffle_i32x4(low01, low23, 0xDD));
    _mm512_storeu_si512(out + (j + 8) * stride, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(out + (j + 12) * stride, _mm512_shuffle_i32x4(high01, high23, 0xDD));
  }
}
RL_INLINE U8x64 AsBytes(const F32x16& a) { return {_mm512_castps_si512(a.v)}; }
RL_INLINE void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
RL_INLINE void PrefetchFar(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// --- Products of 16-bit words; levels with VNNI --------------------------------------------------
#ifdef __AVX512VNNI__
#define RULLAMA_WORD_DOTS
// A register tile: vectors of columns, and rows. 24 int32 accumulators, four vectors of weights and
// a broadcast row.
constexpr int kWordPanels = 4;
constexpr int kWordBatch = 6;
RL_INLINE F32x16 Sqrt(const F32x16& a) { return {_mm512_sqrt_ps(a.v)}; }
// Stores the lanes as 16-bit numbers, which every value has to fit.
RL_INLINE void StoreWords(int16_t* p, const I32x16& a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
// Per lane: the lower 16 bits of a, then those of b.
RL_INLINE U8x64 PairWords(const I32x16& a, const I32x16& b) {
  return {_mm512_mask_blend_epi16(0xAAAAAAAAu, a.v, _mm512_slli_epi32(b.v, 16))};
}
// Lane i: acc + the sum of two products.
RL_INLINE I32x16 DotWords(const I32x16& acc, const U8x64& pairs, const int16_t* x) {
  int32_t two;
  std::memcpy(&two, x, 4);
  return {_mm512_dpwssd_epi32(acc.v, pairs.v, _mm512_set1_epi32(two))};
}
#endif

}  // namespace
}  // namespace rullama::cpu

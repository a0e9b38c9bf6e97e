#include "core/base/sha256.h"

#include <fmt/format.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#define RL_SHA_INSTRUCTIONS
#endif

#include <algorithm>
#include <bit>
#include <cstddef>

namespace rullama {
namespace {

// Section 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64
// primes.
constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using HashState = std::array<uint32_t, 8>;

uint32_t BigEndian32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Section 6.2.2.
void AddBlockPortably(HashState& state, const uint8_t* block) {
  std::array<uint32_t, 64> schedule = {};
  for (size_t t = 0; t < 16; ++t) schedule[t] = BigEndian32(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t x = schedule[t - 15];
    const uint32_t y = schedule[t - 2];
    schedule[t] = schedule[t - 16] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3) +
                  schedule[t - 7] + (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                        ((e & f) ^ (~e & g)) + kRoundConstants[t] + schedule[t];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const HashState added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

#ifdef RL_SHA_INSTRUCTIONS
bool HasShaInstructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kSse41 = 1U << 19;  // of ECX
  constexpr unsigned kSha = 1U << 29;    // of EBX
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSse41) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

__m128i* Vector(void* at) { return static_cast<__m128i*>(at); }
const __m128i* Vector(const void* at) { return static_cast<const __m128i*>(at); }

// The same with the instructions for it, several times as fast.
__attribute__((target("sha,sse4.1"))) void AddBlockWithInstructions(HashState& state,
                                                                    const uint8_t* block) {
  const __m128i byte_order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  // The instructions have the words in the order a b e f, c d g h.
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(Vector(state.data())), 0xb1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(Vector(state.data() + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  const __m128i abef_before = abef;
  const __m128i cdgh_before = cdgh;
  __m128i words[4];
  for (size_t i = 0; i < 16; ++i) {
    __m128i& word = words[i % 4];
    const __m128i& next = words[(i + 1) % 4];
    const __m128i& last = words[(i + 3) % 4];
    if (i < 4) {
      word = _mm_shuffle_epi8(_mm_loadu_si128(Vector(block + 16 * i)), byte_order);
    } else {
      const __m128i shifted = _mm_alignr_epi8(last, words[(i + 2) % 4], 4);
      word = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(word, next), shifted), last);
    }
    const __m128i sum = _mm_add_epi32(word, _mm_loadu_si128(Vector(&kRoundConstants[4 * i])));
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
  }
  abef = _mm_add_epi32(abef, abef_before);
  cdgh = _mm_add_epi32(cdgh, cdgh_before);
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(Vector(state.data()), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(Vector(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

void AddBlock(HashState& state, const uint8_t* block) {
#ifdef RL_SHA_INSTRUCTIONS
  static const bool kHasInstructions = HasShaInstructions();
  if (kHasInstructions) return AddBlockWithInstructions(state, block);
#endif
  AddBlockPortably(state, block);
}

}  // namespace

void Sha256Stream::Add(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  const size_t held = bytes_ % kBlockBytes;
  bytes_ += left;
  if (held > 0) {
    const size_t taken = std::min(left, kBlockBytes - held);
    std::copy_n(data, taken, rest_.begin() + static_cast<std::ptrdiff_t>(held));
    data += taken;
    left -= taken;
    if (held + taken < kBlockBytes) return;
    AddBlock(state_, rest_.data());
  }
  for (; left >= kBlockBytes; left -= kBlockBytes, data += kBlockBytes) AddBlock(state_, data);
  std::copy_n(data, left, rest_.begin());
}

Sha256Digest Sha256Stream::Finish() {
  // Section 5.1.1: a one bit, zeros, and the length in bits.
  const size_t held = bytes_ % kBlockBytes;
  std::array<uint8_t, 2 * kBlockBytes> tail = {};
  std::copy_n(rest_.begin(), held, tail.begin());
  tail[held] = 0x80;
  const size_t padded = held + 9 <= kBlockBytes ? kBlockBytes : 2 * kBlockBytes;
  const uint64_t bits = bytes_ * 8;
  for (size_t i = 0; i < 8; ++i) tail[padded - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  for (size_t at = 0; at < padded; at += kBlockBytes) AddBlock(state_, tail.data() + at);
  Sha256Digest digest = {};
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Sha256Digest Sha256(std::span<const std::byte> bytes) {
  Sha256Stream stream;
  stream.Add(bytes);
  return stream.Finish();
}

Sha256Digest Sha256(std::string_view text) {
  return Sha256(std::as_bytes(std::span(text.data(), text.size())));
}

std::string HexText(const Sha256Digest& digest) {
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace rullama

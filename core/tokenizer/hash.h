// A fast hash of short byte strings and of words, for the tokenizer's tables. Not stable across
// versions and not resistant to chosen collisions; the tables compare what they find and bound
// their probe lengths by their size, so a hostile file can make loading slow but never wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace rullama::tokenizer_internal {

// Odd constants with bits spread evenly (fractions of the golden ratio and of sqrt(2)).
inline constexpr uint64_t kHashSeed = 0x9E3779B97F4A7C15;
inline constexpr uint64_t kHashStep = 0x6A09E667F3BCC909;

inline uint64_t FoldMultiply(uint64_t a, uint64_t b) {
  __extension__ using Uint128 = unsigned __int128;
  const Uint128 product = static_cast<Uint128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

template <typename Word>
inline uint64_t LoadWord(const char* p) {
  Word word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

inline uint64_t HashBytes(std::string_view text) {
  const char* p = text.data();
  size_t left = text.size();
  uint64_t state = kHashSeed ^ (left * kHashStep);
  while (left > 16) {
    state = FoldMultiply(LoadWord<uint64_t>(p) ^ state, LoadWord<uint64_t>(p + 8) ^ kHashStep);
    p += 16;
    left -= 16;
  }
  // The last 1 to 16 bytes as two words that may overlap.
  uint64_t a = 0;
  uint64_t b = 0;
  if (left >= 8) {
    a = LoadWord<uint64_t>(p);
    b = LoadWord<uint64_t>(p + left - 8);
  } else if (left >= 4) {
    a = LoadWord<uint32_t>(p);
    b = LoadWord<uint32_t>(p + left - 4);
  } else if (left > 0) {
    a = LoadWord<uint8_t>(p);
    b = LoadWord<uint8_t>(p + left / 2) << 8 | LoadWord<uint8_t>(p + left - 1);
  }
  return FoldMultiply(FoldMultiply(a ^ state, b ^ kHashStep), kHashSeed);
}

inline uint64_t HashWord(uint64_t word) { return FoldMultiply(word ^ kHashStep, kHashSeed); }

}  // namespace rullama::tokenizer_internal

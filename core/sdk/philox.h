// Philox4x32-10, the counter-based generator of rullama (Salmon, Moraes, Dror, Shaw: "Parallel
// Random Numbers: As Easy as 1, 2, 3", SC 2011), and the layout of its streams. A number depends on
// its key and counter alone, so every backend, batch size and order of execution draws the same.
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace rullama {

struct PhiloxBlock {
  std::array<uint32_t, 4> word;
};

[[nodiscard]] constexpr PhiloxBlock Philox4x32(std::array<uint32_t, 4> counter,
                                               std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;  // golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = kMultiplier0 * counter[0];
    const uint64_t p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return {counter};
}

// The uniform number in [0, 1) of one row: key = the 64-bit seed (low word first), counter =
// (position, stream, use, 0), value = the upper 24 bits of word 0 times 2^-24, exact in binary32.
// `stream` separates sequences with one seed, `use` independent uses at one position (sampler 0,
// further uses 1, 2, ...).
[[nodiscard]] constexpr float PhiloxUniform(uint64_t seed, uint32_t position, uint32_t stream,
                                            uint32_t use) {
  const PhiloxBlock block = Philox4x32(
      {position, stream, use, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(block.word[0] >> 8) * 0x1p-24f;
}

}  // namespace rullama

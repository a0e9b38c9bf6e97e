// Hashes for keys of the host's cache. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace rullama::gpu {

inline constexpr uint64_t kEmptyHash = 0xCBF29CE484222325;
inline constexpr uint64_t kHashPrime = 0x100000001B3;

// FNV-1a of bytes, or of words where there are many; `hash`: of what stands in front.
inline uint64_t HashOf(std::string_view text, uint64_t hash = kEmptyHash) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * kHashPrime;
  return hash;
}
inline uint64_t HashOf(std::span<const uint32_t> words, uint64_t hash = kEmptyHash) {
  for (const uint32_t word : words) hash = (hash ^ word) * kHashPrime;
  return hash;
}

}  // namespace rullama::gpu

// Alignment of the scratch memory that callers give to kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rullama::cpu {

// Kernels align their scratch memory to a cache line, because vectors that straddle lines halve the
// speed of products. Sizes of scratch memory include the slack.
inline constexpr size_t kScratchAlignment = 64;

static inline uint8_t* AlignUp(void* scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch);
  const uintptr_t aligned =
      (address + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return static_cast<uint8_t*>(scratch) + (aligned - address);
}

}  // namespace rullama::cpu

// Helpers shared by simd_avx2.h and simd_avx512.h. Internal linkage throughout, see
// simd_portable.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define RL_INLINE [[gnu::always_inline]] inline

namespace rullama::cpu {
namespace {

// Four 16-bit values kStride bytes apart as one integer. They are combined in general registers,
// because each insertion into a vector occupies a vector port.
template <size_t kStride>
RL_INLINE int64_t FourHalves(const uint8_t* p) {
  uint64_t halves = 0;
  for (size_t i = 0; i < 4; ++i) {
    uint16_t half;
    std::memcpy(&half, p + i * kStride, 2);
    halves |= static_cast<uint64_t>(half) << (16 * i);
  }
  return static_cast<int64_t>(halves);
}
// Two pairs of adjacent 16-bit values, the pairs kStride bytes apart, as one integer.
template <size_t kStride>
RL_INLINE int64_t TwoTwos(const uint8_t* p) {
  uint32_t a, b;
  std::memcpy(&a, p, 4);
  std::memcpy(&b, p + kStride, 4);
  return static_cast<int64_t>(a | static_cast<uint64_t>(b) << 32);
}

}  // namespace
}  // namespace rullama::cpu

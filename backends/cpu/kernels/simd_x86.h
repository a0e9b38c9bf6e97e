// What simd_avx2.h and simd_avx512.h share. Internal linkage throughout, see simd_portable.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define RL_INLINE [[gnu::always_inline]] inline

namespace rullama::cpu {
namespace {

// Halves kStride bytes apart, put together in general registers: inserting them into a vector takes
// as many steps of a vector port.
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
// The same for two times two adjacent halves.
template <size_t kStride>
RL_INLINE int64_t TwoTwos(const uint8_t* p) {
  uint32_t a, b;
  std::memcpy(&a, p, 4);
  std::memcpy(&b, p + kStride, 4);
  return static_cast<int64_t>(a | static_cast<uint64_t>(b) << 32);
}

}  // namespace
}  // namespace rullama::cpu

// Checked integer arithmetic. Every number that comes from a file, a configuration or a plugin goes
// through these helpers before it is used as a size, count or offset: products and sums of foreign
// 64-bit numbers wrap, and that is how GGUF readers have been attacked.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace rullama {

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> CheckedAdd(T a, T b) {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> CheckedMul(T a, T b) {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// The value as `To`, or nothing if it does not fit.
template <std::integral To, std::integral From>
[[nodiscard]] constexpr std::optional<To> CheckedCast(From value) {
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

// `value` rounded up to a multiple of `alignment` (> 0), or nothing if that wraps.
template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> CheckedAlignUp(T value, T alignment) {
  const T remainder = value % alignment;
  if (remainder == 0) return value;
  return CheckedAdd<T>(value, alignment - remainder);
}

// Whether [offset, offset + size) lies inside [0, total) without wrapping.
[[nodiscard]] constexpr bool RangeFits(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

}  // namespace rullama

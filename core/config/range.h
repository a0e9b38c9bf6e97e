// Closed ranges of numbers: what a value may be, how a message says so. Value types, no shared
// state.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace rullama {

// Far above every published vocabulary, small enough that products of three of them stay inside 64
// bits.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

struct IntegerRange {
  int64_t min;
  int64_t max;
  [[nodiscard]] constexpr bool Contains(int64_t value) const {
    return min <= value && value <= max;
  }
  [[nodiscard]] std::string Describe() const {
    return fmt::format("a whole number from {} to {}", min, max);
  }
};

struct RealRange {
  double min;
  double max;
  // The least value itself is outside, compared as the f32 that ops get: 1e-60 is not above 0.
  bool above_min = false;

  // False for NaN.
  [[nodiscard]] constexpr bool Contains(double value) const {
    if (!(min <= value && value <= max)) return false;
    return !above_min || static_cast<float>(value) > static_cast<float>(min);
  }
  [[nodiscard]] std::string Describe() const {
    return above_min ? fmt::format("a number above {}, at most {}", min, max)
                     : fmt::format("a number from {} to {}", min, max);
  }
};

constexpr IntegerRange Integers(int64_t min, int64_t max) { return {min, max}; }
constexpr RealRange Reals(double min, double max) { return {min, max}; }
constexpr RealRange RealsAbove(double min, double max) { return {min, max, true}; }

}  // namespace rullama

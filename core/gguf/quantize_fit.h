// The scale of a run of values that is to be written as small integers. Internal to core/gguf.
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

namespace rullama::gguf_internal {

// Runs have a multiple of this many values: sums are kept in as many lanes, which a compiler turns
// into vector instructions without reordering anything.
inline constexpr int kFitLanes = 8;

// Values, and how much the squared error of each counts. Weights are at least 0, and of a block not
// all 0.
struct Weighted {
  const float* values;
  const float* weights;

  [[nodiscard]] Weighted From(int first) const { return {values + first, weights + first}; }
  [[nodiscard]] float operator[](int i) const { return values[i]; }
  [[nodiscard]] double Weight(int i) const { return static_cast<double>(weights[i]); }
};

// The weights of a block in which every value counts the same.
inline constexpr int kLongestBlock = 256;
inline constexpr auto kEqualWeights = [] {
  std::array<float, kLongestBlock> ones{};
  ones.fill(1);
  return ones;
}();

// Calls encode(values, block) for each block of kElements values and stores it at its unaligned
// place. `weights`: of each value; null: all the same.
template <typename Block, int kElements, typename Encode>
void ForEachBlock(const float* values, const float* weights, size_t count, std::byte* blocks,
                  Encode encode) {
  for (size_t i = 0; i < count; ++i) {
    Block block{};
    encode(Weighted{values + i * kElements,
                    weights == nullptr ? kEqualWeights.data() : weights + i * kElements},
           block);
    std::memcpy(blocks + i * sizeof(Block), &block, sizeof(Block));
  }
}

// value = scale * code + offset
struct AffineFit {
  float scale = 0;
  float offset = 0;
};

// Rounds to the nearest integer, for |value| < 2^22: adding and subtracting 1.5 * 2^23 leaves no
// room for a fraction.
inline float Nearest(float value) {
  constexpr float kRounder = 12582912.0f;
  return (value + kRounder) - kRounder;
}

inline float NearestCode(float value, float low, float high) {
  const float above = value < low ? low : value;
  return Nearest(above > high ? high : above);
}

// Returns 1 / scale, or 0 if the scale is so small that its inverse, or a product with it, could
// overflow. Every quant then is the one next to 0, and so are all values.
float SafeInverse(float scale);

// The scale, of either sign, for which `n` values are nearest to scale * {low..high}, low < 0.
float FitSymmetric(const Weighted& values, int n, int low, int high);

// The best values = scale * {0..high} + offset with scale >= 0. With `offset_not_positive`, as the
// K types store minima, offset <= 0.
AffineFit FitAffine(const Weighted& values, int n, int high, bool offset_not_positive);

// The weighted sum of the squared distances of `n` values from the points scale * {low..high} +
// offset, and in `codes`, if not null, the index of the nearest point of each, counted from 0.
float NearestPoints(const Weighted& values, int n, int low, int high, AffineFit fit,
                    unsigned char* codes);

}  // namespace rullama::gguf_internal

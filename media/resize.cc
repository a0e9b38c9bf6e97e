#include "media/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/base/check.h"

namespace rullama {
namespace {

constexpr size_t kChannels = 3;
// Bits of a weight after the point: 32 less 8 of the samples and 2 for weights that add up to more
// than one.
constexpr int kWeightBits = 32 - 8 - 2;
// The samples of a line that make one sample of the resized line, and their weights.
struct Taps {
  size_t first = 0;
  std::vector<int32_t> weights;  // in units of 2^-kWeightBits
};

// A kernel, and half its width in pixels of the larger picture.
struct Kernel {
  double support;
  double (*at)(double x);
};

double Cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

double Triangle(double x) { return std::max(1.0 - std::abs(x), 0.0); }

constexpr Kernel kBicubic = {.support = 2.0, .at = Cubic};
constexpr Kernel kBilinear = {.support = 1.0, .at = Triangle};

// The taps around `center`, of a line of `from` samples.
Taps TapsAt(const Kernel& kernel, double center, double scale, double from) {
  const double support = kernel.support * scale;
  const auto first = static_cast<int64_t>(std::max(center - support + 0.5, 0.0));
  const auto last = static_cast<int64_t>(std::min(center + support + 0.5, from));
  std::vector<double> weights(static_cast<size_t>(last - first));
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] =
        kernel.at((static_cast<double>(i) + static_cast<double>(first) - center + 0.5) / scale);
    sum += weights[i];
  }
  Taps taps{static_cast<size_t>(first), {}};
  taps.weights.reserve(weights.size());
  for (const double weight : weights) {
    const double scaled = weight / sum * (1 << kWeightBits);
    taps.weights.push_back(static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return taps;
}

// The taps of each sample of a line of `to` samples that is made of one of `from`.
std::vector<Taps> TapsOfLine(const Kernel& kernel, uint32_t from, uint32_t to) {
  const double ratio = static_cast<double>(from) / to;
  std::vector<Taps> line;
  line.reserve(to);
  for (uint32_t i = 0; i < to; ++i) {
    line.push_back(TapsAt(kernel, (i + 0.5) * ratio, std::max(ratio, 1.0), from));
  }
  return line;
}

constexpr int32_t kHalf = 1 << (kWeightBits - 1);  // rounds a sum

uint8_t Sample(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

Picture ResizeRows(const Kernel& kernel, const Picture& picture, uint32_t width) {
  const std::vector<Taps> line = TapsOfLine(kernel, picture.width, width);
  const size_t stride = picture.width * kChannels;
  Picture result{width, picture.height, {}};
  result.rgb.resize(size_t{width} * picture.height * kChannels);
  uint8_t* to = result.rgb.data();
  for (size_t y = 0; y < picture.height; ++y) {
    const uint8_t* const row = picture.rgb.data() + y * stride;
    for (const Taps& taps : line) {
      const uint8_t* from = row + taps.first * kChannels;
      std::array<int32_t, kChannels> sums{kHalf, kHalf, kHalf};
      for (const int32_t weight : taps.weights) {
        for (size_t c = 0; c < kChannels; ++c) sums[c] += weight * from[c];
        from += kChannels;
      }
      for (const int32_t sum : sums) *to++ = Sample(sum);
    }
  }
  return result;
}

// Adds whole rows at a time, which compilers turn into vectors.
Picture ResizeColumns(const Kernel& kernel, const Picture& picture, uint32_t height) {
  const size_t stride = picture.width * kChannels;
  Picture result{picture.width, height, {}};
  result.rgb.resize(height * stride);
  std::vector<int32_t> sums(stride);
  uint8_t* to = result.rgb.data();
  for (const Taps& taps : TapsOfLine(kernel, picture.height, height)) {
    std::ranges::fill(sums, kHalf);
    const uint8_t* from = picture.rgb.data() + taps.first * stride;
    for (const int32_t weight : taps.weights) {
      for (size_t i = 0; i < stride; ++i) sums[i] += weight * from[i];
      from += stride;
    }
    for (size_t i = 0; i < stride; ++i) to[i] = Sample(sums[i]);
    to += stride;
  }
  return result;
}

Picture Resize(const Kernel& kernel, const Picture& picture, uint32_t width, uint32_t height) {
  RL_CHECK(width > 0 && height > 0 && picture.width > 0 && picture.height > 0);
  if (picture.width == width && picture.height == height) return picture;
  if (picture.width == width) return ResizeColumns(kernel, picture, height);
  const Picture narrow = ResizeRows(kernel, picture, width);
  return picture.height == height ? narrow : ResizeColumns(kernel, narrow, height);
}

}  // namespace

Picture ResizeBicubic(const Picture& picture, uint32_t width, uint32_t height) {
  return Resize(kBicubic, picture, width, height);
}

Picture ResizeBilinear(const Picture& picture, uint32_t width, uint32_t height) {
  return Resize(kBilinear, picture, width, height);
}

}  // namespace rullama

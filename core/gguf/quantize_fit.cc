// Given the codes, the best scale (and offset) is a least-squares problem with a closed solution;
// given the scale, the best codes are the nearest. The search starts from several scales around
// the one that just covers the range, since cutting the largest value short often pays, takes the
// nearest codes of each and the least-squares scale of these codes, and keeps the best.
#include "core/gguf/quantize_fit.h"

#include <algorithm>
#include <cmath>

namespace rullama::gguf_internal {
namespace {

// The smallest positive f16 is 2^-24, and a scale below half of it is written as 0.
constexpr float kSmallestScale = 0x1p-40f;

// Starting scales map the largest value this many codes inside or outside of the last one.
constexpr int kStarts = 9;  // on either side
constexpr float kStartStep = 0.1f;

struct Lanes {
  float lane[kFitLanes] = {};
  [[nodiscard]] double Sum() const {
    double sum = 0;
    for (const float value : lane) sum += static_cast<double>(value);
    return sum;
  }
};

// Sums over the quants of a run, from which its scale is computed.
struct Moments {
  double code = 0;         // sum of codes, each times the weight of its value, as all sums
  double code_square = 0;  // of squared codes
  double code_value = 0;   // of codes times values
};

Moments MomentsOf(const Weighted& values, int n, float inverse, float low, float high) {
  Lanes code;
  Lanes square;
  Lanes product;
  for (int i = 0; i < n; i += kFitLanes) {
    for (int l = 0; l < kFitLanes; ++l) {
      const float value = values[i + l];
      const float q = NearestCode(value * inverse, low, high);
      const float weighted = values.weights[i + l] * q;
      code.lane[l] += weighted;
      square.lane[l] += weighted * q;
      product.lane[l] += weighted * value;
    }
  }
  return {code.Sum(), square.Sum(), product.Sum()};
}

struct Candidate {
  double gain = 0;  // by how much the squared error is below that of all codes 0
  AffineFit fit;
};

// The least-squares line through codes and values shifted to begin at 0. `offset_limit` bounds the
// offset from above; `n` is the sum of the weights.
Candidate LineThrough(const Moments& m, double value_sum, double n, double offset_limit) {
  const double determinant = n * m.code_square - m.code * m.code;
  if (!(determinant > 0)) return {};
  double scale = (n * m.code_value - m.code * value_sum) / determinant;
  double offset = (value_sum - scale * m.code) / n;
  if (offset > offset_limit) {
    offset = offset_limit;
    scale = (m.code_value - offset * m.code) / m.code_square;
  }
  if (!(scale > 0)) return {};
  const double gain = 2 * (scale * m.code_value + offset * value_sum) -
                      scale * (scale * m.code_square + 2 * offset * m.code) - n * offset * offset;
  return {gain, {static_cast<float>(scale), static_cast<float>(offset)}};
}

}  // namespace

float SafeInverse(float scale) { return std::fabs(scale) < kSmallestScale ? 0.0f : 1.0f / scale; }

float FitSymmetric(const Weighted& values, int n, int low, int high) {
  float peak = 0;
  for (int i = 0; i < n; ++i) peak = std::fabs(values[i]) > std::fabs(peak) ? values[i] : peak;
  const float per_peak = SafeInverse(peak);
  if (per_peak == 0) return 0;
  double best_gain = 0;
  double best_scale = 0;
  const auto try_inverse = [&](float inverse) {
    const Moments m =
        MomentsOf(values, n, inverse, static_cast<float>(low), static_cast<float>(high));
    if (!(m.code_square > 0)) return;
    const double gain = m.code_value * m.code_value / m.code_square;
    if (gain > best_gain) {
      best_gain = gain;
      best_scale = m.code_value / m.code_square;
    }
  };
  for (const int end : {low, high}) {
    for (int start = -kStarts; start <= kStarts; ++start) {
      try_inverse((static_cast<float>(end) + kStartStep * static_cast<float>(start)) * per_peak);
    }
  }
  try_inverse(SafeInverse(static_cast<float>(best_scale)));
  return static_cast<float>(best_scale);
}

AffineFit FitAffine(const Weighted& values, int n, int high, bool offset_not_positive) {
  float low_value = values[0];
  float high_value = values[0];
  for (int i = 1; i < n; ++i) {
    low_value = std::min(low_value, values[i]);
    high_value = std::max(high_value, values[i]);
  }
  if (offset_not_positive) low_value = std::min(low_value, 0.0f);
  const float per_range = SafeInverse(high_value - low_value);
  if (per_range == 0) return {0, low_value};
  constexpr int kLongestRun = 32;
  float shifted[kLongestRun];
  double value_sum = 0, weight_sum = 0;
  for (int i = 0; i < n; ++i) {
    shifted[i] = values[i] - low_value;
    value_sum += values.Weight(i) * static_cast<double>(shifted[i]);
    weight_sum += values.Weight(i);
  }
  const double limit = offset_not_positive ? -static_cast<double>(low_value) : INFINITY;
  const auto top = static_cast<float>(high);
  Candidate best{0, {(high_value - low_value) / top, 0}};
  const auto try_inverse = [&](float inverse, float offset) {
    float moved[kLongestRun];
    for (int i = 0; i < n; ++i) moved[i] = shifted[i] - offset;
    Moments m = MomentsOf({moved, values.weights}, n, inverse, 0, top);
    m.code_value += static_cast<double>(offset) * m.code;
    const Candidate candidate = LineThrough(m, value_sum, weight_sum, limit);
    if (candidate.gain > best.gain) best = candidate;
  };
  for (int start = -kStarts; start <= kStarts; ++start) {
    try_inverse((top + kStartStep * static_cast<float>(start)) * per_range, 0);
  }
  for (int round = 0; round < 2; ++round) {  // towards the local optimum
    try_inverse(SafeInverse(best.fit.scale), best.fit.offset);
  }
  return {best.fit.scale, best.fit.offset + low_value};
}

float NearestPoints(const Weighted& values, int n, int low, int high, AffineFit fit,
                    unsigned char* codes) {
  const float inverse = SafeInverse(fit.scale);
  const auto first = static_cast<float>(low);
  const auto last = static_cast<float>(high);
  Lanes error;
  for (int i = 0; i < n; i += kFitLanes) {
    for (int l = 0; l < kFitLanes; ++l) {
      const float value = values[i + l] - fit.offset;
      const float q = NearestCode(value * inverse, first, last);
      const float distance = value - fit.scale * q;
      error.lane[l] += values.weights[i + l] * distance * distance;
      if (codes != nullptr) codes[i + l] = static_cast<unsigned char>(q - first);
    }
  }
  return static_cast<float>(error.Sum());
}

}  // namespace rullama::gguf_internal

// The inner loops of products: dot products of one input with several weight rows at a time, and
// sums of scaled rows. A single dot product waits for its last addition; those of different rows do
// not wait for each other. Each sum adds in the order of its row, so the grouping changes no
// result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/reference/kernels.h"

namespace rullama::reference {

inline constexpr size_t kLanes = 8;  // weight rows at a time
using Lanes = std::array<double, kLanes>;

// Decodes `count` <= kLanes rows of `row.size()` elements, from row `first` on: one Lanes for each
// element of a row. `row` is scratch; further lanes keep what they hold.
inline Status ReadLanes(const Tensor& weight, int64_t first, int64_t count,
                        std::vector<double>& row, std::vector<Lanes>& lanes) {
  for (int64_t lane = 0; lane < count; ++lane) {
    RL_RETURN_IF_ERROR(ReadFloats(weight, (first + lane) * static_cast<int64_t>(row.size()), row));
    for (size_t i = 0; i < row.size(); ++i) lanes[i][static_cast<size_t>(lane)] = row[i];
  }
  return OkStatus();
}

// Sanitizers do not watch the loops below, which do most of the reference's work and index only
// what their arguments span.

// The dot product of x with each lane of `weights`, which has one Lanes for each element of x.
__attribute__((no_sanitize("address", "undefined"))) inline Lanes DotLanes(
    std::span<const double> x, const std::vector<Lanes>& weights) {
  double sums[kLanes] = {};
  const double* const factor = x.data();
  const double* weight = weights.data()->data();
  const size_t size = x.size();
  for (size_t i = 0; i < size; ++i, weight += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += factor[i] * weight[lane];
  }
  return std::to_array(sums);
}

// y += factor x, for vectors of one length.
__attribute__((no_sanitize("address", "undefined"))) inline void AddScaled(
    double factor, std::span<const double> x, std::span<double> y) {
  const double* const from = x.data();
  double* const to = y.data();
  const size_t size = x.size();
  for (size_t i = 0; i < size; ++i) to[i] += factor * from[i];
}

}  // namespace rullama::reference

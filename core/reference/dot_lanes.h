// Dot products of one input with several weight rows at a time. A single sum waits for its last
// addition; sums of different rows do not wait for each other. Each sum adds in the order of its
// row, so the grouping changes no result.
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

// The dot product of x with each lane of `weights`, which has one Lanes for each element of x.
inline Lanes DotLanes(std::span<const double> x, const std::vector<Lanes>& weights) {
  Lanes sums = {};
  for (size_t i = 0; i < x.size(); ++i) {
    const Lanes& weight = weights[i];
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[i] * weight[lane];
  }
  return sums;
}

}  // namespace rullama::reference

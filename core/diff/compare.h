// Differences between the results of two backends for one value. Sums are float64. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rullama {

struct ValueError {
  double nmse = 0;         // sum of squared differences over the sum of squares of the baseline
  double max_error = 0;    // the largest difference of an element
  double cosine = 1;       // of the two as vectors
  int64_t not_finite = 0;  // elements that are NaN or infinite on one side, or different infinities
};
// `actual` and `baseline` have the same length. Elements that are the same infinity on both sides
// are left out; others that are not finite make nmse infinite.
ValueError CompareValues(std::span<const float> actual, std::span<const float> baseline);

// The predictions at one position.
struct PositionError {
  double kl = 0;          // nats, of softmax(baseline) from softmax(actual)
  bool same_best = true;  // whether the largest logit is the same token
};
// Rows of `vocabulary` logits.
std::vector<PositionError> CompareLogitsByPosition(std::span<const float> actual,
                                                   std::span<const float> baseline,
                                                   int64_t vocabulary);

struct LogitsError {
  double mean_kl = 0;  // over positions
  double max_kl = 0;
  double top1 = 1;  // part of the positions with the same best token
};
LogitsError SummaryOf(std::span<const PositionError> positions);
// Both in one.
LogitsError CompareLogits(std::span<const float> actual, std::span<const float> baseline,
                          int64_t vocabulary);

}  // namespace rullama

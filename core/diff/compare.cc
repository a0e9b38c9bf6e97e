#include "core/diff/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rullama {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ln sum exp of a row.
double LogSum(std::span<const float> row) {
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (const float x : row) sum += std::exp(double{x} - largest);
  return largest + std::log(sum);
}

double Divergence(std::span<const float> actual, std::span<const float> baseline) {
  const double actual_sum = LogSum(actual);
  const double baseline_sum = LogSum(baseline);
  // Left out of the sum below, a baseline that is not a distribution would look like no difference.
  if (!std::isfinite(baseline_sum)) return kInfinity;
  double divergence = 0;
  for (size_t i = 0; i < baseline.size(); ++i) {
    const double log_p = double{baseline[i]} - baseline_sum;
    const double p = std::exp(log_p);
    if (p > 0) divergence += p * (log_p - (double{actual[i]} - actual_sum));
  }
  // Rounding may leave a little less than nothing.
  return std::isnan(divergence) ? kInfinity : std::max(0.0, divergence);
}

}  // namespace

ValueError CompareValues(std::span<const float> actual, std::span<const float> baseline) {
  ValueError result;
  double error = 0, energy = 0, actual_energy = 0, product = 0;
  for (size_t i = 0; i < baseline.size(); ++i) {
    const double a = actual[i], b = baseline[i];
    if (!std::isfinite(a) || !std::isfinite(b)) {
      result.not_finite += a == b ? 0 : 1;
      continue;
    }
    error += (a - b) * (a - b);
    energy += b * b;
    actual_energy += a * a;
    product += a * b;
    result.max_error = std::max(result.max_error, std::abs(a - b));
  }
  if (error > 0) result.nmse = energy > 0 ? error / energy : kInfinity;
  if (result.not_finite > 0) result.nmse = kInfinity;
  const double norms = std::sqrt(energy) * std::sqrt(actual_energy);
  if (norms > 0) result.cosine = product / norms;
  return result;
}

std::vector<PositionError> CompareLogitsByPosition(std::span<const float> actual,
                                                   std::span<const float> baseline,
                                                   int64_t vocabulary) {
  const auto columns = static_cast<size_t>(vocabulary);
  const auto best = [](std::span<const float> x) {
    return std::ranges::max_element(x) - x.begin();
  };
  std::vector<PositionError> positions(baseline.size() / columns);
  for (size_t row = 0; row < positions.size(); ++row) {
    const auto a = actual.subspan(row * columns, columns);
    const auto b = baseline.subspan(row * columns, columns);
    positions[row] = {Divergence(a, b), best(a) == best(b)};
  }
  return positions;
}

LogitsError CompareLogits(std::span<const float> actual, std::span<const float> baseline,
                          int64_t vocabulary) {
  return SummaryOf(CompareLogitsByPosition(actual, baseline, vocabulary));
}

LogitsError SummaryOf(std::span<const PositionError> positions) {
  LogitsError result;
  const auto rows = static_cast<double>(positions.size());
  size_t same = 0;
  for (const PositionError& position : positions) {
    result.mean_kl += position.kl / rows;
    result.max_kl = std::max(result.max_kl, position.kl);
    same += position.same_best ? 1 : 0;
  }
  if (!positions.empty()) result.top1 = static_cast<double>(same) / rows;
  return result;
}

}  // namespace rullama

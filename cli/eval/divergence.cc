#include "cli/eval/divergence.h"

#include <algorithm>
#include <cmath>

namespace rullama::cli {
namespace {

// Log-probabilities below this count as none.
constexpr float kLowest = -16;

// The value that this share of the sorted values does not exceed.
double Quantile(const std::vector<float>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return (1 - part) * sorted[below] + part * sorted[above];
}

}  // namespace

void Divergence::Add(std::span<const float> logits, const LogProbRow& base, int32_t next) {
  const auto best = std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - *best);
  const double log_sum = *best + std::log(sum);
  double kl = 0;
  size_t base_best = 0;
  float base_max = base.At(0);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float log_base = base.At(i);
    if (log_base > base_max) {
      base_max = log_base;
      base_best = i;
    }
    if (log_base > kLowest) kl += std::exp(log_base) * (log_base - logits[i] + log_sum);
  }
  const auto token = static_cast<size_t>(next);
  const double nll = log_sum - logits[token];
  const double base_nll = -base.At(token);
  nll_.Add(nll);
  base_nll_.Add(base_nll);
  products_ += nll * base_nll;
  kl_.Add(kl);
  kls_.push_back(static_cast<float>(kl));
  const double shift = std::exp(-nll) - std::exp(-base_nll);
  shifts_ += shift * shift;
  if (static_cast<size_t>(best - logits.begin()) == base_best) ++same_best_;
}

Mean Divergence::MeanOf(const Sums& sums) const {
  const auto count = static_cast<double>(kls_.size());
  const double mean = sums.sum / count;
  const double variance = sums.squares / count - mean * mean;
  constexpr double kFew = 10;
  return {mean, variance > 0 && count > kFew ? std::sqrt(variance / (count - 1)) : 0};
}

DivergenceReport Divergence::Report() const {
  DivergenceReport report{.tokens = std::ssize(kls_)};
  if (kls_.empty()) return report;
  const auto count = static_cast<double>(kls_.size());
  report.nll = MeanOf(nll_);
  report.base_nll = MeanOf(base_nll_);
  report.kl = MeanOf(kl_);
  double covariance = 0;
  if (count > 1) {
    covariance = (products_ / count - report.nll.value * report.base_nll.value) / (count - 1);
  }
  const double errors = report.nll.error * report.base_nll.error;
  if (errors > 0) report.correlation = covariance / errors;
  const double variance = report.nll.error * report.nll.error +
                          report.base_nll.error * report.base_nll.error -
                          (errors > 0 ? 2 * covariance : 0);
  report.log_ratio = {report.nll.value - report.base_nll.value, std::sqrt(std::max(variance, 0.0))};
  std::vector<float> sorted = kls_;
  std::ranges::sort(sorted);
  report.kl_max = sorted.back();
  report.kl_99 = Quantile(sorted, 0.99);
  report.kl_median = Quantile(sorted, 0.5);
  report.shift_rms = std::sqrt(shifts_ / count);
  const double share = static_cast<double>(same_best_) / count;
  report.same_best = {share, count > 1 ? std::sqrt(share * (1 - share) / (count - 1)) : 0};
  return report;
}

}  // namespace rullama::cli

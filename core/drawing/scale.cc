#include "core/drawing/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rullama::drawing {
namespace {

// 1, 2 or 5 times a power of ten, at least `step`.
double RoundStep(double step) {
  const double decade = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= step * (1 - 1e-9)) return factor * decade;
  }
  return 10 * decade;
}

// `factor`, a digit, times a power of ten, short.
std::string RoundText(int factor, int exponent) {
  if (exponent < -3 || exponent > 5) return fmt::format("{}e{}", factor, exponent);
  return fmt::format("{:g}", factor * std::pow(10, exponent));
}

// Three marks in each decade, for a short axis.
std::vector<Tick> TicksWithin(int first, int last) {
  std::vector<Tick> ticks;
  for (int exponent = first; exponent < last; ++exponent) {
    for (const int factor : {1, 2, 5}) {
      ticks.push_back({factor * std::pow(10, exponent), RoundText(factor, exponent)});
    }
  }
  ticks.push_back({std::pow(10, last), RoundText(1, last)});
  return ticks;
}

}  // namespace

Scale Scale::Linear(double low, double high) {
  if (!(high > low)) high = low + 1;
  const double step = RoundStep((high - low) / 5);
  return {false, std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step};
}

Scale Scale::Logarithmic(double low, double high) {
  const double first = std::floor(std::log10(low) + 1e-9);
  const double last = std::max(first + 1, std::ceil(std::log10(std::max(low, high)) - 1e-9));
  return {true, std::pow(10, first), std::pow(10, last)};
}

Scale Scale::Tight(double low, double high) { return {false, low, std::max(high, low + 1)}; }

double Scale::At(double value) const {
  if (logarithmic_) {
    return (std::log10(value) - std::log10(low_)) / (std::log10(high_) - std::log10(low_));
  }
  return (value - low_) / (high_ - low_);
}

std::vector<Tick> Scale::Ticks(size_t most, bool whole) const {
  std::vector<Tick> ticks;
  const auto count = static_cast<double>(std::max<size_t>(most, 2));
  if (!logarithmic_) {
    const double step = std::max(RoundStep((high_ - low_) / count), whole ? 1.0 : 0.0);
    const auto first = static_cast<int64_t>(std::ceil(low_ / step - 1e-9));
    const auto last = static_cast<int64_t>(std::floor(high_ / step + 1e-9));
    for (int64_t i = first; i <= last; ++i) {
      const double value = static_cast<double>(i) * step;
      ticks.push_back({value, fmt::format("{:.10g}", value)});
    }
    return ticks;
  }
  const auto first = static_cast<int>(std::lround(std::log10(low_)));
  const auto last = static_cast<int>(std::lround(std::log10(high_)));
  if (last - first <= 2) return TicksWithin(first, last);
  const int stride = std::max(1, static_cast<int>(std::ceil((last - first) / count)));
  for (int exponent = first; exponent <= last; exponent += stride) {
    ticks.push_back({std::pow(10, exponent), RoundText(1, exponent)});
  }
  return ticks;
}

}  // namespace rullama::drawing

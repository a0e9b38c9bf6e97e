#include "cli/bench/bench_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rullama::cli {
namespace {

double MedianOf(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

std::string_view BenchTest::kind_name() const {
  switch (kind) {
    case BenchKind::kPrompt:
      return "pp";
    case BenchKind::kAllRows:
      return "pa";
    case BenchKind::kGenerate:
      return "tg";
    case BenchKind::kDenoise:
      return "dn";
    case BenchKind::kEncode:
      return "enc";
  }
  return "";
}

std::string BenchTest::name() const {
  return fmt::format("{}{}{}", kind_name(), tokens, depth > 0 ? fmt::format(" @ d{}", depth) : "");
}

std::vector<double> BenchMeasurement::Rates() const {
  std::vector<double> rates;
  rates.reserve(seconds.size());
  for (const double s : seconds) rates.push_back(static_cast<double>(test.tokens) / s);
  std::ranges::sort(rates);
  return rates;
}

double BenchMeasurement::Mean() const {
  const std::vector<double> rates = Rates();
  return std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
}

double BenchMeasurement::StandardDeviation() const {
  const std::vector<double> rates = Rates();
  if (rates.size() < 2) return 0;
  const double mean = Mean();
  double sum = 0;
  for (const double rate : rates) sum += (rate - mean) * (rate - mean);
  return std::sqrt(sum / static_cast<double>(rates.size() - 1));
}

double BenchMeasurement::Median() const { return MedianOf(Rates()); }

double BenchMeasurement::MedianSeconds() const {
  return static_cast<double>(test.tokens) / Median();
}

double BenchMeasurement::MedianPrepareSeconds() const {
  return prepare_seconds.empty() ? 0 : MedianOf(prepare_seconds);
}

}  // namespace rullama::cli

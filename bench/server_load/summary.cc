#include "bench/server_load/summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

namespace rullama::bench {
namespace {

constexpr size_t kMostErrors = 5;  // that are listed

double Rounded(double value, double steps) { return std::round(value * steps) / steps; }

}  // namespace

nlohmann::ordered_json Spread(std::vector<double> seconds) {
  if (seconds.empty()) return nullptr;
  std::ranges::sort(seconds);
  const auto at = [&](double part) {
    const auto place = static_cast<size_t>(part * static_cast<double>(seconds.size()));
    return Rounded(1000 * seconds[std::min(place, seconds.size() - 1)], 100);
  };
  return {{"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}, {"max", at(1)}};
}

nlohmann::ordered_json Summary(const std::vector<Sample>& samples, double seconds) {
  std::vector<double> first_texts, gaps, totals, late;
  int64_t tokens = 0, prompt_tokens = 0, failed = 0;
  std::set<std::string> errors;
  for (const Sample& sample : samples) {
    late.push_back(sample.late);
    if (!sample.error.empty()) {
      ++failed;
      errors.insert(sample.error);
      continue;
    }
    tokens += sample.tokens;
    prompt_tokens += sample.prompt_tokens;
    if (sample.first_text) first_texts.push_back(*sample.first_text);
    gaps.insert(gaps.end(), sample.gaps.begin(), sample.gaps.end());
    totals.push_back(sample.total);
  }
  nlohmann::ordered_json out{
      {"requests", samples.size()},
      {"failed", failed},
      {"prompt_tokens", prompt_tokens},
      {"tokens", tokens},
      {"seconds", Rounded(seconds, 1000)},
      {"tokens_per_second", seconds > 0 ? Rounded(static_cast<double>(tokens) / seconds, 10) : 0},
      {"ttft_ms", Spread(std::move(first_texts))},
      {"itl_ms", Spread(std::move(gaps))},
      {"request_ms", Spread(std::move(totals))},
      {"late_ms", Spread(std::move(late))}};
  for (const std::string& error : errors) {
    if (out["errors"].size() < kMostErrors) out["errors"].push_back(error);
  }
  return out;
}

}  // namespace rullama::bench

#include "bench/server_load/load_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string_view>

namespace rullama::bench {
namespace {

constexpr std::array<std::string_view, 24> kWords = {
    "prince",  "princess", "war",      "peace",  "Moscow", "snow",   "letter",  "army",
    "general", "horse",    "evening",  "smile",  "voice",  "room",   "window",  "father",
    "mother",  "officer",  "regiment", "battle", "dinner", "Pierre", "Natasha", "Kutuzov"};

// The same on every platform, which the distributions of the library are not.
double Uniform(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
}
double Normal(std::mt19937_64& random) {
  constexpr double kTurn = 6.283185307179586;
  const double radius = std::sqrt(-2 * std::log(Uniform(random)));
  return radius * std::cos(kTurn * Uniform(random));
}

// A length whose logarithm has a normal distribution of standard deviation 1. Cut at eight times
// the mean, so that a single answer does not decide how long a run takes.
int64_t MixedLength(std::mt19937_64& random, double mean) {
  const double length = mean * std::exp(Normal(random) - 0.5);
  return std::clamp<int64_t>(std::llround(length), 1, static_cast<int64_t>(8 * mean));
}

void AppendWords(std::mt19937_64& random, size_t count, std::string& text) {
  for (size_t i = 0; i < count; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[random() % kWords.size()];
  }
}

PlannedRequest RequestOf(const Lengths& lengths, uint64_t seed) {
  std::mt19937_64 random(seed), common(1);
  PlannedRequest request{.tokens = lengths.tokens, .seed = seed};
  size_t words = lengths.prompt_words;
  if (lengths.mixed) {
    words = static_cast<size_t>(MixedLength(random, static_cast<double>(words)));
    request.tokens = MixedLength(random, static_cast<double>(lengths.tokens));
  }
  const size_t shared = std::min(words, lengths.shared_words);
  AppendWords(common, shared, request.prompt);
  AppendWords(random, words - shared, request.prompt);
  return request;
}

}  // namespace

std::vector<PlannedRequest> ClosedLoop(const Lengths& lengths, size_t requests, uint64_t seed) {
  std::vector<PlannedRequest> plan;
  plan.reserve(requests);
  for (size_t i = 0; i < requests; ++i) plan.push_back(RequestOf(lengths, seed + i));
  return plan;
}

std::vector<PlannedRequest> OpenLoop(const Lengths& lengths, size_t requests, double rate,
                                     uint64_t seed) {
  std::vector<PlannedRequest> plan = ClosedLoop(lengths, requests, seed);
  std::mt19937_64 random(seed);
  double now = 0;
  for (PlannedRequest& request : plan) {
    now -= std::log(Uniform(random)) / rate;
    request.start = now;
  }
  return plan;
}

}  // namespace rullama::bench

// The requests of clients: when, how many words, how many tokens. Made from a seed alone, so that
// two servers get the same load.
//
// Thread safety: none needed; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rullama::bench {

// Lengths of prompts and answers.
struct Lengths {
  size_t prompt_words = 60;
  size_t shared_words = 0;  // that all prompts begin with
  int64_t tokens = 64;      // of an answer
  // Lengths are drawn from log-normal distributions whose means are these, as those of people's
  // conversations are; else all are equal.
  bool mixed = false;
};
// Means of the conversations of ShareGPT, in tokens (Kwon et al., 2023, "Efficient Memory
// Management for Large Language Model Serving with PagedAttention", section 6.1).
inline constexpr size_t kMeanPrompt = 161;
inline constexpr int64_t kMeanAnswer = 338;

struct PlannedRequest {
  double start = 0;  // seconds after the beginning; of a closed loop 0: after the one before it
  std::string prompt = {};
  int64_t tokens = 0;
  uint64_t seed = 0;       // of the sampler
  std::string model = {};  // that is asked for; empty: Target::model
};

// The requests of one client, one after another.
std::vector<PlannedRequest> ClosedLoop(const Lengths& lengths, size_t requests, uint64_t seed);

// Requests that arrive at random, on average `rate` per second, whatever is still being answered.
std::vector<PlannedRequest> OpenLoop(const Lengths& lengths, size_t requests, double rate,
                                     uint64_t seed);

}  // namespace rullama::bench

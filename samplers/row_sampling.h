// The sampler settings of one row of a step in which rows of several requests share a graph
// (row_chain.h). Value types; pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "samplers/settings.h"

namespace rullama {

// Added to the logit of a token; -infinity bans it.
struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};

// The most biases of a row.
inline constexpr int64_t kMaxRowBiases = 1024;

// The numbers have the ranges and meanings of sampler_settings.def. Each default changes nothing.
struct RowSampling {
  double temperature = 1;  // 0: always take the most likely token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  double min_p = 0;
  double typical_p = 1;
  double repeat_penalty = 1;
  double frequency_penalty = 0;
  double presence_penalty = 0;
  int64_t repeat_last_n = 0;  // -1: the whole context
  uint64_t seed = 0;
  uint32_t stream = 0;  // of several answers to one prompt: 0, 1, ...
  // A bit for each token, from the lowest bit of the first word on: 0 bans it. MaskWords() of the
  // vocabulary, or empty if all tokens are allowed. Borrowed, as is `bias`.
  std::span<const uint32_t> mask = {};
  std::span<const TokenBias> bias = {};  // tokens are distinct

  [[nodiscard]] bool IsGreedy() const { return temperature < kGreedyTemperature; }
  // True if any penalty has an effect.
  [[nodiscard]] bool HasPenalties() const;
};

// The settings of a row, without the biases: `bias` borrows.
[[nodiscard]] RowSampling RowSamplingOf(const SamplerSettings& settings, uint32_t stream = 0);

// Words of a mask of `vocabulary` tokens.
[[nodiscard]] constexpr int64_t MaskWords(int64_t vocabulary) { return (vocabulary + 31) / 32; }

}  // namespace rullama

// The sampler settings of one row of a step (row_chain.h). Value types; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "samplers/settings.h"

namespace rullama {

// Added to the logit of a token; -infinity bans it.
struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};

// The most biases of a row: those of its settings, and further tokens that are banned, such as
// those that end an answer.
inline constexpr int64_t kMaxBannedTokens = 32;
inline constexpr int64_t kMaxRowBiases = kMaxLogitBiases + kMaxBannedTokens;

// The numbers are those of sampler_settings.def. Each default changes nothing; temperature 0 always
// takes the most likely token.
struct RowSampling {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) Type name = off;
#include "core/config/sampler_settings.def"
  uint64_t seed = 0;
  uint32_t stream = 0;  // of several answers to one prompt: 0, 1, ...
  // A bit for each token, from the lowest bit of the first word on: 0 bans it. MaskWords() of the
  // vocabulary, or empty if all tokens are allowed. Borrowed, as is `bias`.
  std::span<const uint32_t> mask = {};
  std::span<const TokenBias> bias = {};  // tokens are distinct

  [[nodiscard]] bool IsGreedy() const { return temperature < kGreedyTemperature; }
};

// The settings of a row, without the biases: `bias` borrows.
[[nodiscard]] RowSampling RowSamplingOf(const SamplerSettings& settings, uint32_t stream = 0);

// The biases of the settings that change a logit, by ascending token. The tokens are within i32.
[[nodiscard]] std::vector<TokenBias> BiasesOf(const SamplerSettings& settings);

// Words of a mask of `vocabulary` tokens.
[[nodiscard]] constexpr int64_t MaskWords(int64_t vocabulary) { return (vocabulary + 31) / 32; }

}  // namespace rullama

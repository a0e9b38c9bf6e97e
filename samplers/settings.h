// The sampler settings. Value types.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/gguf/gguf.h"
#include "samplers/entropy_bound.h"

namespace rullama {

// Below this temperature only logits within 1e-3 of the best could be drawn, and 1 / temperature
// approaches the limits of f32.
inline constexpr double kGreedyTemperature = 1e-4;

// The most entries of `logit_bias`.
inline constexpr int64_t kMaxLogitBiases = 1024;

// The numbers are those of sampler_settings.def. The defaults are the published values of Gemma 4;
// all steps except temperature, top_k and top_p are off.
struct SamplerSettings {
  bool greedy = false;  // always take the most likely token, like temperature 0
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) Type name = value;
#include "core/config/sampler_settings.def"
  std::map<int64_t, double> logit_bias = {};  // token id -> added to its logit; -infinity bans it
  uint64_t seed = 0;

  // Errors: sampler.range (kUsage) with the setting, its value and its range; sampler.logit_bias
  // (kUsage); sampler.empty (kRuntime) if the bias bans the whole vocabulary.
  [[nodiscard]] Status Validate(int64_t vocabulary) const;

  // "temperature 1, top_k 64, ...", or "greedy".
  [[nodiscard]] std::string Describe() const;

  [[nodiscard]] bool IsGreedy() const;
};

// The settings from `config`, else from the model file's recommendation (general.sampling.*), else
// the defaults. Error gguf.key_type. The seed is 0 if `config` has none; the caller then draws one.
Result<SamplerSettings> ResolveSettings(const SamplerConfig& config, const GgufFile& file);

// The same for denoising; `recommended` is the recommendation of the model file.
EntropyBoundSettings ResolveSettings(const DiffusionConfig& config,
                                     const EntropyBoundSettings& recommended);

}  // namespace rullama

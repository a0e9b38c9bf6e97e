// The sampler settings. Value types.
#pragma once

#include <cstdint>
#include <map>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/gguf/gguf.h"
#include "samplers/entropy_bound.h"

namespace rullama {

// The defaults are the published values of Gemma 4; everything except temperature, top_k and top_p
// is off.
struct SamplerSettings {
  bool greedy = false;  // always take the most likely token, like temperature 0
  double temperature = 1.0;
  int64_t top_k = 64;          // 0 keeps all
  double top_p = 0.95;         // 1 keeps all
  double min_p = 0;            // 0 keeps all
  double typical_p = 1;        // 1 keeps all
  double repeat_penalty = 1;   // 1 is off
  int64_t repeat_last_n = 64;  // tokens the three penalties look back; 0 = none, -1 = all
  double frequency_penalty = 0;
  double presence_penalty = 0;
  std::map<int64_t, double> logit_bias = {};  // token id -> added to its logit; -infinity bans it
  uint64_t seed = 0;

  // Errors: sampler.<member> (kUsage) with what was found and the range; sampler.empty (kRuntime)
  // if the bias bans the whole vocabulary.
  [[nodiscard]] Status Validate(int64_t vocabulary) const;

  [[nodiscard]] bool IsGreedy() const;
  // True if any penalty has an effect.
  [[nodiscard]] bool HasPenalties() const;
};

// The settings from `config`, else from the model file's recommendation (general.sampling.*), else
// the defaults. Error gguf.key_type. The seed is 0 if `config` has none; the caller then draws one.
Result<SamplerSettings> ResolveSettings(const SamplerConfig& config, const GgufFile& file);

// The same for denoising; `recommended` is the recommendation of the model file.
EntropyBoundSettings ResolveSettings(const DiffusionConfig& config,
                                     const EntropyBoundSettings& recommended);

}  // namespace rullama

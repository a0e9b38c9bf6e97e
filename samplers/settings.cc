#include "samplers/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "core/config/sampler_ranges.h"

namespace rullama {
namespace {

template <typename Range, typename Number>
Status InRange(std::string_view name, Number value, const Range& range) {
  if (range.Contains(value)) return OkStatus();
  return MakeError(ErrorKind::kUsage, "sampler.range", "sampler.{} is {}, expected {}", name, value,
                   range.Describe());
}

// The recommendation of the model file under `key`, if it has one.
Status Recommend(const GgufFile& file, const char* key, double& member) {
  RL_ASSIGN_OR_RETURN(const auto recommended, file.FindF32(key));
  if (recommended) member = *recommended;
  return OkStatus();
}

Status Recommend(const GgufFile& file, const char* key, int64_t& member) {
  const GgufValue* recommended = file.Find(key);
  if (recommended != nullptr && recommended->type != GgufType::kArray) {
    member = IntegerAt<int64_t>(*recommended, 0).value_or(member);
  }
  return OkStatus();
}

Status CheckBias(const std::map<int64_t, double>& bias, int64_t vocabulary) {
  if (std::ssize(bias) > kMaxLogitBiases) {
    return MakeError(ErrorKind::kUsage, "sampler.logit_bias",
                     "logit_bias has {} entries, expected at most {}", bias.size(),
                     kMaxLogitBiases);
  }
  int64_t banned = 0;
  for (const auto& [id, value] : bias) {
    if (id < 0 || id >= vocabulary) {
      return MakeError(ErrorKind::kUsage, "sampler.logit_bias",
                       "logit_bias names token {}, expected 0 to {}", id, vocabulary - 1);
    }
    const bool ban = std::isinf(value) && value < 0;
    if (!ban && !sampler_ranges::kLogitBias.Contains(value)) {
      return MakeError(ErrorKind::kUsage, "sampler.logit_bias",
                       "logit_bias of token {} is {}, expected {}, or -infinity", id, value,
                       sampler_ranges::kLogitBias.Describe());
    }
    banned += ban ? 1 : 0;
  }
  if (banned == vocabulary) {
    return MakeError(ErrorKind::kRuntime, "sampler.empty",
                     "logit_bias bans all {} tokens, expected at least one to remain", vocabulary);
  }
  return OkStatus();
}

}  // namespace

Status SamplerSettings::Validate(int64_t vocabulary) const {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  RL_RETURN_IF_ERROR(InRange(#name, name, range));
#include "core/config/sampler_settings.def"
  RL_RETURN_IF_ERROR(InRange("top_k", top_k, IntegerRange{0, vocabulary}));
  return CheckBias(logit_bias, vocabulary);
}

std::string SamplerSettings::Describe() const {
  if (IsGreedy()) return "greedy";
  std::string text;
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  text += fmt::format("{} {}, ", #name, name);
#include "core/config/sampler_settings.def"
  return text + fmt::format("seed {}", seed);
}

bool SamplerSettings::IsGreedy() const { return greedy || temperature < kGreedyTemperature; }

Result<SamplerSettings> ResolveSettings(const SamplerConfig& config, const GgufFile& file) {
  SamplerSettings s;
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  if (*key != 0) RL_RETURN_IF_ERROR(Recommend(file, key, s.name));              \
  s.name = config.name.value_or(s.name);
#include "core/config/sampler_settings.def"
  s.greedy = config.greedy.value_or(s.greedy);
  s.seed = static_cast<uint64_t>(std::max<int64_t>(config.seed.value_or(0), 0));
  s.logit_bias = config.logit_bias;
  return s;
}

EntropyBoundSettings ResolveSettings(const DiffusionConfig& config,
                                     const EntropyBoundSettings& recommended) {
  EntropyBoundSettings s = recommended;
  const auto real = [](float& member, const std::optional<double>& chosen) {
    if (chosen) member = static_cast<float>(*chosen);
  };
  s.max_steps = config.max_steps.value_or(s.max_steps);
  real(s.t_min, config.t_min);
  real(s.t_max, config.t_max);
  real(s.entropy_bound, config.entropy_bound);
  s.stability_threshold = config.stability_threshold.value_or(s.stability_threshold);
  real(s.confidence_threshold, config.confidence_threshold);
  return s;
}

}  // namespace rullama

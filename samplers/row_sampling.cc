#include "samplers/row_sampling.h"

namespace rullama {

RowSampling RowSamplingOf(const SamplerSettings& settings, uint32_t stream) {
  RowSampling row;
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  row.name = settings.name;
#include "core/config/sampler_settings.def"
  if (settings.IsGreedy()) row.temperature = 0;
  row.seed = settings.seed;
  row.stream = stream;
  return row;
}

std::vector<TokenBias> BiasesOf(const SamplerSettings& settings) {
  std::vector<TokenBias> biases;
  for (const auto& [token, bias] : settings.logit_bias) {
    if (bias != 0) biases.push_back({static_cast<int32_t>(token), static_cast<float>(bias)});
  }
  return biases;
}

}  // namespace rullama

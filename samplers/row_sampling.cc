#include "samplers/row_sampling.h"

namespace rullama {

bool RowSampling::HasPenalties() const {
  return repeat_last_n != 0 &&
         (repeat_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0);
}

RowSampling RowSamplingOf(const SamplerSettings& settings, uint32_t stream) {
  RowSampling row;
#define RL_SAMPLER_SETTING(Type, name, value, range, key, flag, help, doc) row.name = settings.name;
#include "core/config/sampler_settings.def"
  if (settings.IsGreedy()) row.temperature = 0;
  row.seed = settings.seed;
  row.stream = stream;
  return row;
}

}  // namespace rullama

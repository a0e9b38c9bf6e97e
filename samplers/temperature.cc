#include "samplers/steps.h"

namespace rullama::samplers {

void AddTemperature(StepContext& context, Candidates& candidates) {
  const double temperature = context.settings.temperature;
  if (temperature == 1) return;
  candidates.logits = context.builder.Add(
      ops::Affine{.x = candidates.logits, .scale = static_cast<float>(1 / temperature), .bias = 0},
      "sampler.temperature");
}

}  // namespace rullama::samplers

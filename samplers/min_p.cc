#include "samplers/steps.h"

namespace rullama::samplers {

void AddMinP(StepContext& context, Candidates& candidates) {
  const auto p = static_cast<float>(context.settings.min_p);
  if (p <= 0) return;
  candidates.logits =
      context.builder.Add(ops::MinPMask{.x = candidates.logits, .p = p}, "sampler.min_p");
}

}  // namespace rullama::samplers

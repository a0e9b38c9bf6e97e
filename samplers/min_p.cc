#include "samplers/steps.h"

namespace rullama::samplers {

void AddMinP(StepContext& context, Candidates& candidates) {
  const auto p = static_cast<float>(context.settings.min_p);
  if (p <= 0) return;
  candidates.logits = context.builder.MinPMask(candidates.logits, p, "sampler.min_p");
}

}  // namespace rullama::samplers

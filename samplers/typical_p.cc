#include "samplers/steps.h"

namespace rullama::samplers {

void AddTypicalP(StepContext& context, Candidates& candidates) {
  if (context.settings.typical_p >= 1) return;
  candidates.logits = context.builder.TypicalPMask(
      candidates.logits, static_cast<float>(context.settings.typical_p), "sampler.typical_p");
}

}  // namespace rullama::samplers

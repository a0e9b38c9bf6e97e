#include "samplers/steps.h"

namespace rullama::samplers {

void AddTypicalP(StepContext& context, Candidates& candidates) {
  if (context.settings.typical_p >= 1) return;
  candidates.logits =
      context.builder.Add(ops::TypicalPMask{.x = candidates.logits,
                                            .p = static_cast<float>(context.settings.typical_p)},
                          "sampler.typical_p");
}

}  // namespace rullama::samplers

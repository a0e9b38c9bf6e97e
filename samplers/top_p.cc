#include "samplers/steps.h"

namespace rullama::samplers {

void AddTopP(StepContext& context, Candidates& candidates) {
  if (context.settings.top_p >= 1) return;
  candidates.logits = context.builder.Add(
      ops::TopPMask{.x = candidates.logits, .p = static_cast<float>(context.settings.top_p)},
      "sampler.top_p");
}

}  // namespace rullama::samplers

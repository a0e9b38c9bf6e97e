#include "samplers/steps.h"

namespace rullama::samplers {

void AddTopK(StepContext& context, Candidates& candidates) {
  const SamplerSettings& s = context.settings;
  const bool truncates = s.top_k > 0 && s.top_k < context.vocabulary;
  // top_p needs the tokens in descending order even if none is dropped here.
  if (!truncates && s.top_p >= 1) return;
  const int64_t k = truncates ? s.top_k : context.vocabulary;
  const auto top = context.builder.Add(ops::TopK{.x = candidates.logits, .k = k}, "sampler.top_k");
  candidates = {.logits = top.values, .ids = top.indices};
}

}  // namespace rullama::samplers

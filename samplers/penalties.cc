#include <algorithm>

#include "samplers/steps.h"

namespace rullama::samplers {

void AddPenalties(StepContext& context, Candidates& candidates) {
  const SamplerSettings& s = context.settings;
  const SamplerInputs& in = context.inputs;
  if (!s.HasPenalties()) return;
  const int64_t look_back =
      s.repeat_last_n < 0 ? in.capacity : std::min(s.repeat_last_n, in.capacity);
  GraphBuilder& b = context.builder;
  const ValueId history = b.State(kSamplerHistory, {DType::kI32, {in.slots, look_back}});
  candidates.logits =
      b.Penalties(candidates.logits, history, in.tokens, in.rows, look_back,
                  static_cast<float>(s.repeat_penalty), static_cast<float>(s.frequency_penalty),
                  static_cast<float>(s.presence_penalty), "sampler.penalised");
  b.StateAppend(history, in.tokens, in.rows.kv_pos, in.rows.kv_slot, "sampler.history.next");
}

}  // namespace rullama::samplers

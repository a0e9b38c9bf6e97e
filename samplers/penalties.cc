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
      b.Add(ops::WithRows(ops::Penalties{.logits = candidates.logits,
                                         .history = history,
                                         .tokens = in.tokens,
                                         .last_n = look_back,
                                         .repeat = static_cast<float>(s.repeat_penalty),
                                         .frequency = static_cast<float>(s.frequency_penalty),
                                         .presence = static_cast<float>(s.presence_penalty)},
                          in.rows),
            "sampler.penalised");
  b.Add(
      ops::StateAppend{
          .state = history, .rows = in.tokens, .pos = in.rows.kv_pos, .slot = in.rows.kv_slot},
      "sampler.history.next");
}

}  // namespace rullama::samplers

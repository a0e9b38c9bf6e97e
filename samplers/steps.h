// The steps of the sampler chain. Each step appends its ops according to the settings, or leaves
// the candidates unchanged if it would have no effect. Internal to samplers. Not thread-safe.
#pragma once

#include "core/ir/builder.h"
#include "samplers/chain.h"

namespace rullama::samplers {

// The tokens that may still be drawn.
struct Candidates {
  ValueId logits = kNoValue;  // f32[rows, n]; -inf where a step has dropped a token
  ValueId ids = kNoValue;     // i32[rows, n], token ids by descending logit; kNoValue: column = id
};

// `inputs` has the wanted rows of q_pos and q_slot.
struct StepContext {
  GraphBuilder& builder;
  const SamplerInputs& inputs;
  const SamplerSettings& settings;
  int64_t vocabulary;
  Sampler& sampler;
};

#define RL_SAMPLER_STEP(Name, name, when) \
  void Add##Name(StepContext& context, Candidates& candidates);
#include "samplers/steps.def"

// The wanted rows of a value of T rows, and the inputs with those of the positions and slots.
ValueId WantedRows(GraphBuilder& builder, ValueId value, ValueId wanted);
SamplerInputs AtWantedRows(GraphBuilder& builder, SamplerInputs inputs);

// i32[rows]: a token id drawn from the candidates.
ValueId AddDraw(StepContext& context, const Candidates& candidates);
ValueId AddGreedy(StepContext& context, const Candidates& candidates);

}  // namespace rullama::samplers

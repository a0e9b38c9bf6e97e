#include "samplers/steps.h"

namespace rullama::samplers {
namespace {

constexpr int kSamplerStream = 0;  // stream of PhiloxUniform()

}  // namespace

ValueId AddDraw(StepContext& context, const Candidates& candidates) {
  GraphBuilder& b = context.builder;
  const TensorType seed_type(DType::kI32, {2});
  const ValueId seed = b.Input(input_names::kSeed, seed_type);
  context.sampler.bindings.push_back(
      {std::string(input_names::kSeed), seed_type, SeedBytes(context.settings.seed)});
  const ValueId uniform = b.Add(ops::RandomUniform{.seed = seed,
                                                   .pos = context.inputs.rows.q_pos,
                                                   .slot = context.inputs.rows.q_slot,
                                                   .stream = kSamplerStream},
                                "sampler.uniform");
  if (candidates.ids == kNoValue)
    return b.Add(ops::Categorical{.x = candidates.logits, .u = uniform}, "sampler.token");
  const ValueId column =
      b.Add(ops::Categorical{.x = candidates.logits, .u = uniform}, "sampler.column");
  return b.Add(ops::GatherLast{.x = candidates.ids, .index = column}, "sampler.token");
}

ValueId AddGreedy(StepContext& context, const Candidates& candidates) {
  return context.builder.Add(ops::ArgMax{candidates.logits}, "sampler.token");
}

}  // namespace rullama::samplers

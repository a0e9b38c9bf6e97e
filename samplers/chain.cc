#include "samplers/chain.h"

#include "samplers/steps.h"

namespace rullama {
namespace {

enum class When { kAlways, kDrawn };

}  // namespace

Result<Sampler> AppendSampler(GraphBuilder& builder, ValueId logits, const SamplerInputs& inputs,
                              const SamplerSettings& settings) {
  // After an earlier error the builder has no types; its Finish() reports the error.
  if (!builder.ok()) return Sampler();
  const int64_t vocabulary = builder.graph().type(logits).last().constant;
  RL_RETURN_IF_ERROR(settings.Validate(vocabulary));
  const SamplerInputs at_wanted = samplers::AtWantedRows(builder, inputs);
  Sampler sampler;
  samplers::StepContext context{.builder = builder,
                                .inputs = at_wanted,
                                .settings = settings,
                                .vocabulary = vocabulary,
                                .sampler = sampler};
  samplers::Candidates candidates{.logits = samplers::WantedRows(builder, logits, inputs.wanted)};
  const bool greedy = settings.IsGreedy();
#define RL_SAMPLER_STEP(Name, name, when) \
  if (!greedy || When::when == When::kAlways) Add##Name(context, candidates);
#include "samplers/steps.def"
  sampler.token = greedy ? AddGreedy(context, candidates) : AddDraw(context, candidates);
  builder.Output(kTokenOutput, sampler.token, RowDemand::kWanted);
  return sampler;
}

}  // namespace rullama

#include "samplers/chain.h"

#include <array>
#include <cstring>

#include "samplers/steps.h"

namespace rullama {

std::vector<std::byte> SeedBytes(uint64_t seed) {
  const std::array<uint32_t, 2> words = {static_cast<uint32_t>(seed),
                                         static_cast<uint32_t>(seed >> 32)};
  std::vector<std::byte> bytes(sizeof(words));
  std::memcpy(bytes.data(), words.data(), sizeof(words));
  return bytes;
}

Result<Sampler> AppendSampler(GraphBuilder& builder, ValueId logits, const SamplerInputs& inputs,
                              const SamplerSettings& settings) {
  // After an earlier error the builder has no types; its Finish() reports the error.
  if (!builder.ok()) return Sampler();
  const int64_t vocabulary = builder.graph().type(logits).last().constant;
  RL_RETURN_IF_ERROR(settings.Validate(vocabulary));
  Sampler sampler;
  samplers::StepContext context{.builder = builder,
                                .inputs = inputs,
                                .settings = settings,
                                .vocabulary = vocabulary,
                                .sampler = sampler};
  samplers::Candidates candidates{.logits = logits};
  AddLogitBias(context, candidates);
  AddPenalties(context, candidates);
  if (settings.IsGreedy()) {
    sampler.token = AddGreedy(context, candidates);
  } else {
    AddTopK(context, candidates);
    AddTypicalP(context, candidates);
    AddTopP(context, candidates);
    AddMinP(context, candidates);
    AddTemperature(context, candidates);
    sampler.token = AddDraw(context, candidates);
  }
  builder.Output(kTokenOutput, sampler.token, RowDemand::kWanted);
  return sampler;
}

}  // namespace rullama

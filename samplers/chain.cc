#include "samplers/chain.h"

#include <array>
#include <cstring>

#include "samplers/steps.h"

namespace rullama {
namespace {

enum class When { kAlways, kDrawn };

}  // namespace

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
  const bool greedy = settings.IsGreedy();
#define RL_SAMPLER_STEP(Name, name, when) \
  if (!greedy || When::when == When::kAlways) Add##Name(context, candidates);
#include "samplers/steps.def"
  sampler.token = greedy ? AddGreedy(context, candidates) : AddDraw(context, candidates);
  builder.Output(kTokenOutput, sampler.token, RowDemand::kWanted);
  return sampler;
}

}  // namespace rullama

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "samplers/steps.h"

namespace rullama::samplers {

ValueId WantedRows(GraphBuilder& builder, ValueId value, ValueId wanted) {
  return builder.Add(ops::GatherRows{.table = value, .ids = wanted});
}

SamplerInputs AtWantedRows(GraphBuilder& builder, SamplerInputs inputs) {
  inputs.rows.q_pos = WantedRows(builder, inputs.rows.q_pos, inputs.wanted);
  inputs.rows.q_slot = WantedRows(builder, inputs.rows.q_slot, inputs.wanted);
  return inputs;
}

ValueId AddDraw(StepContext& context, const Candidates& candidates) {
  GraphBuilder& b = context.builder;
  const TensorType type(DType::kI32, {Dim::R(), 3});
  const uint64_t seed = context.settings.seed;
  const std::array<uint32_t, 3> words = {static_cast<uint32_t>(seed),
                                         static_cast<uint32_t>(seed >> 32), /*stream=*/0};
  std::vector<std::byte> bytes(sizeof(words));
  std::memcpy(bytes.data(), words.data(), sizeof(words));
  context.sampler.bindings.push_back({std::string(kDrawKeyInput), type, std::move(bytes)});
  const ValueId uniform =
      b.Add(ops::RowUniform{.key = b.Input(kDrawKeyInput, type), .pos = context.inputs.rows.q_pos},
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

// Test fixture: a graph with the inputs of a model, two slots and an input for the logits.
#pragma once

#include <limits>

#include "samplers/chain.h"

namespace rullama {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr int64_t kVocabulary = 100;

struct SamplerFixture {
  static constexpr int64_t kSlots = 2;

  explicit SamplerFixture(int64_t vocabulary, int64_t max_t = 1) : builder(Empty(max_t)) {
    const TensorType rows(DType::kI32, {Dim::T()});
    inputs.tokens = builder.Input(input_names::kTokens, rows);
    const ValueId pos = builder.Input(input_names::kPos, rows);
    const ValueId slot = builder.Input(input_names::kSlot, rows);
    const ValueId past = builder.Input(input_names::kPast, {DType::kI32, {kSlots}});
    inputs.rows = {.q_pos = pos, .q_slot = slot, .kv_pos = pos, .kv_slot = slot, .past = past};
    inputs.slots = kSlots;
    inputs.capacity = 512;
    inputs.wanted = builder.Input(input_names::kRows, {DType::kI32, {Dim::R()}});
    builder.WantedRows(inputs.wanted);
    logits = builder.Input("logits", {DType::kF32, {Dim::T(), vocabulary}});
  }

  GraphBuilder builder;
  SamplerInputs inputs;
  ValueId logits;

 private:
  static Graph Empty(int64_t max_t) {
    Graph graph;
    graph.name = "fixture";
    graph.max_t = max_t;
    graph.max_r = max_t;
    return graph;
  }
};

}  // namespace rullama

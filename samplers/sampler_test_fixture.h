// Test fixture: a graph with the inputs of a model, two slots and an input for the logits.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/reference/interpreter.h"
#include "samplers/row_chain.h"

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

// An interpreter of the graph of the fixture.
inline reference::Interpreter InterpreterOf(SamplerFixture fixture) {
  auto graph = std::move(fixture.builder).Finish();
  if (!graph) throw std::runtime_error(graph.error().ToString());
  auto interpreter = reference::Interpreter::Create(*std::move(graph), nullptr);
  if (!interpreter) throw std::runtime_error(interpreter.error().ToString());
  return *std::move(interpreter);
}

// Binds what `inputs` was set to for `rows` wanted rows.
inline void BindRowInputs(const RowInputs& inputs, int64_t rows,
                          reference::Interpreter& interpreter) {
  using reference::Tensor;
  for (const auto& [name, bytes] : inputs.inputs()) {
    const TensorType& type = interpreter.graph().type(interpreter.graph().Find(name));
    std::vector<int64_t> dims = {rows};
    if (type.rank > 1) dims.push_back(type.last().constant);
    Status bound = OkStatus();
    if (type.dtype == DType::kF32) {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      bound = interpreter.Bind(name, Tensor::F32(dims, {values.begin(), values.end()}));
    } else {
      std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      bound = interpreter.Bind(name, Tensor::I32(dims, values));
    }
    EXPECT_TRUE(bound) << bound.error().ToString();
  }
}

}  // namespace rullama

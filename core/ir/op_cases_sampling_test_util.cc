#include <cmath>

#include "core/ir/op_cases_test_util.h"

namespace rullama::test {

std::vector<OpCase> SamplingCases() {
  const Dim t = Dim::T();
  const Dim r = Dim::R();
  return {
      {{OpKind::kPenalties,
        OpAttrs(rl_penalties_attrs{0, 64, 1.1F, 0.5F, 0.25F}),
        {F({r, 100}), I({3, 64}), I({t}), I({r}), I({r}), I({t}), I({t}), I({3})}},
       {F({r, 100})},
       {{Attr(rl_penalties_attrs{0, 65, 1.1F, 0, 0}),
         "last_n = 65 is outside 0 to the capacity 64"},
        {Attr(rl_penalties_attrs{0, 64, 0, 0, 0}), "must be finite and repeat > 0"},
        {Attr(rl_penalties_attrs{0, 64, 1, NAN, 0}), "must be finite"},
        {Operand(1, F({3, 64})), "operand history is f32[3,64], expected i32"},
        {Operand(5, I({r})), "operand kv_pos is i32[R], expected i32[T]"},
        {Operand(7, I({1})), "operand past is i32[1], expected i32[3]"}}},
      {{OpKind::kBiasAdd, OpAttrs(OpKind::kBiasAdd), {F({r, 100}), I({5}), F({5})}},
       {F({r, 100})},
       {{Operand(1, F({5})), "operand ids is f32[5], expected i32"},
        {Operand(2, F({4})), "operand bias is f32[4], expected f32[5]"}}},
      {{OpKind::kTopPMask, OpAttrs(rl_top_p_mask_attrs{0, 0.9F}), {F({r, 100})}},
       {F({r, 100})},
       {{Attr(rl_top_p_mask_attrs{0, 0}), "p is 0, expected 0 < p <= 1"},
        {Attr(rl_top_p_mask_attrs{0, 1.5F}), "p is 1.5"},
        {Operand(0, F({r})), "expected rank 2"}}},
      {{OpKind::kMinPMask, OpAttrs(rl_min_p_mask_attrs{0, 0.05F}), {F({r, 100})}},
       {F({r, 100})},
       {{Attr(rl_min_p_mask_attrs{0, -0.1F}), "expected 0 < p <= 1"},
        {Operand(0, I({r, 100})), "expected f32"}}},
      {{OpKind::kTypicalPMask, OpAttrs(rl_typical_p_mask_attrs{0, 0.9F}), {F({r, 100})}},
       {F({r, 100})},
       {{Attr(rl_typical_p_mask_attrs{0, NAN}), "p is nan"},
        {Operand(0, F({r, 4, 100})), "expected rank 2"}}},
      {{OpKind::kRandomUniform, OpAttrs(rl_random_uniform_attrs{0, 1}), {I({2}), I({r}), I({r})}},
       {F({r})},
       {{Operand(0, I({1})), "operand seed is i32[1], expected i32[2]"},
        {Operand(1, F({r})), "operand pos is f32[R], expected i32[R]"},
        {Operand(2, I({t})), "operand slot is i32[T], expected i32[R]"}}},
      {{OpKind::kCategorical, OpAttrs(OpKind::kCategorical), {F({r, 100}), F({r})}},
       {I({r})},
       {{Operand(0, F({r})), "expected rank 2"},
        {Operand(1, F({t})), "operand u is f32[T], expected f32[R]"}}},
      {{OpKind::kEntropyAccept, OpAttrs(rl_entropy_accept_attrs{0, 0.1F}), {F({t})}},
       {F({t})},
       {{Attr(rl_entropy_accept_attrs{0, -1}), "bound is -1, expected >= 0"},
        {Attr(rl_entropy_accept_attrs{0, NAN}), "bound is nan"},
        {Operand(0, F({t, 1})), "expected rank 1"}}},
      {{OpKind::kTokenMask, OpAttrs(OpKind::kTokenMask), {F({r, 100}), I({r, 4})}},
       {F({r, 100})},
       {{Operand(0, F({r})), "expected rank 2"},
        {Operand(1, I({r, 3})), "operand bits is i32[R,3], expected i32[R,4]"},
        {Operand(1, I({t, 4})), "operand bits is i32[T,4], expected i32[R,4]"}}},
      {{OpKind::kRowBias, OpAttrs(OpKind::kRowBias), {F({r, 100}), I({r, 5}), F({r, 5})}},
       {F({r, 100})},
       {{Operand(1, I({5})), "operand ids is i32[5], expected rank 2"},
        {Operand(1, F({r, 5})), "operand ids is f32[R,5], expected i32[R,5]"},
        {Operand(2, F({r, 4})), "operand bias is f32[R,4], expected f32[R,5]"}}},
      {{OpKind::kRowPenalties,
        OpAttrs(OpKind::kRowPenalties),
        {F({r, 100}), I({3, 64}), I({t}), I({r}), I({r}), I({t}), I({t}), I({3}), F({r, 4})}},
       {F({r, 100})},
       {{Operand(1, F({3, 64})), "operand history is f32[3,64], expected i32"},
        {Operand(5, I({r})), "operand kv_pos is i32[R], expected i32[T]"},
        {Operand(8, F({4})), "operand settings is f32[4], expected f32[R,4]"}}},
      {{OpKind::kRowUniform, OpAttrs(OpKind::kRowUniform), {I({r, 3}), I({r})}},
       {F({r})},
       {{Operand(0, I({r, 2})), "operand key is i32[R,2], expected i32[R,3]"},
        {Operand(1, F({r})), "operand pos is f32[R], expected i32[R]"}}},
      {{OpKind::kRowSample, OpAttrs(OpKind::kRowSample), {F({r, 100}), F({r}), F({r, 5})}},
       {I({r})},
       {{Operand(0, F({r})), "expected rank 2"},
        {Operand(1, F({t})), "operand u is f32[T], expected f32[R]"},
        {Operand(2, F({r, 4})), "operand settings is f32[R,4], expected f32[R,5]"}}},
      {{OpKind::kSoftEmbed,
        OpAttrs(OpKind::kSoftEmbed),
        {F({t, 100}), F({1}), TensorType(DType::kQ8_0, {100, 64})}},
       {F({t, 64})},
       {{Operand(1, F({2})), "operand inverse_temperature is f32[2], expected f32[1]"},
        {Operand(2, F({64, 100})), "does not fit 100 input columns"}}},
  };
}

Graph GraphOf(const OpUse& use) {
  const OpInfo& info = InfoOf(use.kind);
  Graph graph;
  graph.name = info.name;
  graph.max_t = 16;
  graph.max_r = 4;
  Op op{use.kind, {}, {}, use.attrs};
  for (size_t i = 0; i < use.operands.size(); ++i) {
    if (!use.operands[i]) {
      op.inputs.push_back(kNoValue);
      continue;
    }
    const auto id = static_cast<ValueId>(graph.values.size());
    const bool written = i < WrittenOperands(info);
    Value value;
    value.type = *use.operands[i];
    value.lifetime = written ? Lifetime::kState : Lifetime::kInput;
    value.name = info.operands[i].name;
    value.state = written ? id : kNoValue;
    graph.values.push_back(value);
    op.inputs.push_back(id);
  }
  for (const OpCase& row : OpCases()) {
    if (row.use.kind != use.kind) continue;
    for (size_t i = 0; i < row.results.size(); ++i) {
      const auto id = static_cast<ValueId>(graph.values.size());
      Value value;
      value.type = row.results[i];
      value.name = std::string("result.") + std::string(info.results[i]);
      value.producer = 0;
      if (i < WrittenOperands(info)) {
        value.lifetime = Lifetime::kState;
        value.state = op.inputs[i];
      } else {
        graph.outputs.push_back({value.name, id, RowDemand::kAll});
      }
      graph.values.push_back(value);
      op.results.push_back(id);
    }
  }
  graph.ops.push_back(op);
  return graph;
}

}  // namespace rullama::test

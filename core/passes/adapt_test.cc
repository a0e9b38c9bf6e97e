// Each adapted graph is run by the float64 reference and compared with the graph as it was, on
// weights W + scale * B A.
#include "core/passes/adapt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/ir/adapter_names.h"
#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"
#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::Tensor;

// Values that depend on the name and the place in the tensor; rows from `first_row` on.
Tensor NamedValues(std::string_view source, int64_t first_row, const TensorType& type) {
  Tensor tensor = reference::MakeZeros(type.dtype, reference::DimsAt(type, {}));
  const size_t skipped = static_cast<size_t>(first_row * tensor.row_elements());
  std::mt19937_64 random(std::hash<std::string_view>{}(source));
  std::normal_distribution<double> normal(0, 0.7);
  for (size_t i = 0; i < skipped + tensor.f.size(); ++i) {
    const double value = static_cast<float>(normal(random));
    if (i >= skipped) tensor.f[i - skipped] = value;
  }
  return tensor;
}

// The weight `source` with all its adapters merged into it.
Tensor MergedValues(std::span<const LowRankPair> pairs, std::string_view source, int64_t first_row,
                    const TensorType& type) {
  Tensor weight = NamedValues(source, first_row, type);
  for (const LowRankPair& pair : pairs) {
    if (pair.weight != source) continue;
    const Tensor a = NamedValues(pair.a, 0, pair.AType());
    const Tensor b = NamedValues(pair.b, 0, pair.BType());
    for (size_t i = 0; i < weight.f.size(); ++i) {
      const int64_t column = static_cast<int64_t>(i) % pair.inputs;
      const int64_t row = static_cast<int64_t>(i) / pair.inputs + first_row;
      const int64_t expert = pair.experts == 0 ? 0 : row / pair.outputs;
      for (int64_t k = 0; k < pair.rank; ++k) {
        const auto at_a = static_cast<size_t>((expert * pair.rank + k) * pair.inputs + column);
        weight.f[i] += pair.scale * b.f[static_cast<size_t>(row * pair.rank + k)] * a.f[at_a];
      }
    }
  }
  return weight;
}

using Binding = std::pair<std::string, Tensor>;

Tensor Floats(const std::string& name, std::vector<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return Tensor::F32(std::move(dims), NamedValues(name, 0, {DType::kF32, {count}}).f);
}

Tensor RunGraph(const Graph& graph, std::span<const LowRankPair> merged,
                const std::vector<Binding>& inputs, const Extents& extents, const char* output) {
  Interpreter interpreter = Must(Interpreter::Create(
      graph, [merged](std::string_view source, int64_t first_row, const TensorType& type) {
        return Result<Tensor>(MergedValues(merged, source, first_row, type));
      }));
  for (const auto& [name, tensor] : inputs) {
    if (graph.Find(name) != kNoValue) {
      EXPECT_TRUE(interpreter.Bind(name, tensor));
    }
  }
  EXPECT_TRUE(interpreter.Run(extents));
  return *interpreter.GetOutput(output);
}

// Expects the adapted graph to compute what the graph computes with merged weights, and something
// else than with its own.
Graph ExpectMerged(const Graph& graph, const std::vector<LowRankPair>& pairs,
                   const std::vector<Binding>& inputs, const Extents& extents, const char* output) {
  Graph adapted = Must(AdaptProducts(graph, pairs));
  EXPECT_TRUE(Verify(adapted));
  const Tensor found = RunGraph(adapted, {}, inputs, extents, output);
  const Tensor expected = RunGraph(graph, pairs, inputs, extents, output);
  const Tensor base = RunGraph(graph, {}, inputs, extents, output);
  EXPECT_EQ(found.dims, expected.dims);
  double worst = 0;
  double change = 0;
  for (size_t i = 0; i < expected.f.size(); ++i) {
    worst = std::max(worst, std::abs(found.f[i] - expected.f[i]));
    change = std::max(change, std::abs(base.f[i] - expected.f[i]));
  }
  EXPECT_LT(worst, 1e-5);
  EXPECT_GT(change, 1e-2);
  return adapted;
}

LowRankPair Pair(const std::string& weight, int64_t outputs, int64_t inputs, int64_t rank,
                 float scale = 1) {
  return {.weight = weight,
          .rank = rank,
          .inputs = inputs,
          .outputs = outputs,
          .a = weight + ".a" + std::to_string(rank),
          .b = weight + ".b" + std::to_string(rank),
          .scale = scale};
}

std::vector<Binding> MiniInputs() {
  return {{"tokens", Tensor::I32({4}, {3, 7, 1, 30})}, {"pos", Tensor::I32({4}, {0, 1, 2, 0})},
          {"slot", Tensor::I32({4}, {0, 0, 0, 1})},    {"past", Tensor::I32({2}, {0, 0})},
          {"rows", Tensor::I32({2}, {2, 3})},          {"seed", Tensor::I32({2}, {1, 2})}};
}

TEST(Adapt, EachProductOfAModel) {
  using Model = MiniModel;
  const std::vector<LowRankPair> pairs = {
      Pair("blk.0.q.weight", Model::kHeads * Model::kHeadDim, Model::kWidth, 2),
      Pair("blk.1.k.weight", Model::kHeadDim, Model::kWidth, 3, 0.5F),
      Pair("blk.0.o.weight", Model::kWidth, Model::kWidth, 1),
      Pair("blk.2.up.weight", Model::kFeedForward, Model::kWidth, 2, -1),
      Pair("blk.1.ple_proj.weight", Model::kWidth, Model::kPleWidth, 2),
  };
  const Graph base = MiniModel::Build();
  const Graph adapted = ExpectMerged(base, pairs, MiniInputs(), {4, 2}, "logits");
  // Composites without an adapted weight stay whole.
  EXPECT_EQ(CountOps(adapted, OpKind::kGeGluLinear), CountOps(base, OpKind::kGeGluLinear) - 1);
  EXPECT_EQ(CountOps(adapted, OpKind::kPleInject), CountOps(base, OpKind::kPleInject) - 1);
  EXPECT_NE(adapted.Find("blk.2.ffn.gated"), kNoValue);
  // A scale of 1 needs no op of its own.
  EXPECT_EQ(CountOps(adapted, OpKind::kAdaptedLinear), 3);
  EXPECT_EQ(adapted.Find("blk.0.q.m/base"), kNoValue);
  EXPECT_NE(adapted.Find("blk.1.k.m/base"), kNoValue);
}

TEST(Adapt, GateAndUpStayOneOpIfBothAreAdapted) {
  using Model = MiniModel;
  const auto gate = [](int layer) {
    return Pair("blk." + std::to_string(layer) + ".gate.weight", Model::kFeedForward, Model::kWidth,
                2);
  };
  const auto up = [](int layer, float scale = 1) {
    return Pair("blk." + std::to_string(layer) + ".up.weight", Model::kFeedForward, Model::kWidth,
                3, scale);
  };
  const std::vector<LowRankPair> pairs = {gate(0), up(0), gate(1), gate(2), up(2, 0.5F)};
  const Graph base = MiniModel::Build();
  const Graph adapted = ExpectMerged(base, pairs, MiniInputs(), {4, 2}, "logits");
  EXPECT_EQ(CountOps(adapted, OpKind::kAdaptedGeGluLinear), 1);
  EXPECT_EQ(CountOps(adapted, OpKind::kAdaptedLinear), 2);
  EXPECT_EQ(CountOps(adapted, OpKind::kGeGluLinear), CountOps(base, OpKind::kGeGluLinear) - 3);
}

TEST(Adapt, SeveralAdaptersOfOneWeightAddUp) {
  const std::vector<LowRankPair> pairs = {Pair("blk.0.q.weight", 8, 8, 1, 2),
                                          Pair("blk.0.q.weight", 8, 8, 2, 0.25F),
                                          Pair("blk.0.q.weight", 8, 8, 3)};
  ExpectMerged(MiniModel::Build(), pairs, MiniInputs(), {4, 2}, "logits");
}

TEST(Adapt, PartsOfTheRowsOfAWeight) {
  GraphBuilder b("parts");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId first = b.Add(ops::Linear(x, b.Constant("w", {DType::kF32, {3, 4}}, 0)), "first");
  const ValueId second = b.Add(ops::Linear(x, b.Constant("w", {DType::kF32, {5, 4}}, 3)), "second");
  b.Output("y", b.Add(ops::Concat{.a = first, .b = second, .axis = 1}, "y"), RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = 2;
  const std::vector<Binding> inputs = {{"x", Floats("x", {2, 4})}};
  ExpectMerged(graph, {Pair("w", 8, 4, 2)}, inputs, {2, 0}, "y");
  LowRankPair state = Pair("w", 8, 4, 2);
  state.lifetime = Lifetime::kState;
  EXPECT_EQ(AdaptProducts(graph, {&state, 1}).error().id, "adapt.rows");
}

TEST(Adapt, Experts) {
  GraphBuilder b("experts");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId chosen = b.Input("chosen", {DType::kI32, {Dim::T(), 2}});
  const ValueId weights = b.Input("weights", {DType::kF32, {Dim::T(), 2}});
  b.Output("y",
           b.Add(ops::MoeFfn{.x = x,
                             .weights = weights,
                             .experts = chosen,
                             .gate_weight = b.Constant("gate_up", {DType::kF32, {3, 12, 4}}),
                             .down_weight = b.Constant("down", {DType::kF32, {3, 4, 6}})},
                 "y"),
           RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = 2;
  LowRankPair gate = Pair("gate_up", 12, 4, 2, 0.5F);
  gate.experts = 3;
  LowRankPair down = Pair("down", 4, 6, 3);
  down.experts = 3;
  const std::vector<Binding> inputs = {{"x", Floats("x", {2, 4})},
                                       {"chosen", Tensor::I32({2, 2}, {0, 2, 1, 0})},
                                       {"weights", Floats("weights", {2, 2})}};
  ExpectMerged(graph, {gate, down}, inputs, {2, 0}, "y");
}

// The change that adapter `id` of a pair makes to the row of `x`.
Tensor Delta(const LowRankPair& pair, int64_t id, float factor, std::span<const double> x) {
  const Tensor a = NamedValues(pair.a, 0, pair.AType());
  const Tensor b = NamedValues(pair.b, 0, pair.BType());
  Tensor delta =
      Tensor::F32({pair.outputs}, std::vector<double>(static_cast<size_t>(pair.outputs), 0.0));
  for (int64_t k = 0; k < pair.rank; ++k) {
    double inner = 0;
    for (int64_t i = 0; i < pair.inputs; ++i) {
      inner += a.f[static_cast<size_t>((id * pair.rank + k) * pair.inputs + i)] *
               x[static_cast<size_t>(i)];
    }
    for (int64_t n = 0; n < pair.outputs; ++n) {
      const auto at = static_cast<size_t>((id * pair.outputs + n) * pair.rank + k);
      delta.f[static_cast<size_t>(n)] += pair.scale * factor * inner * b.f[at];
    }
  }
  return delta;
}

TEST(Adapt, RowsChoose) {
  constexpr int64_t kRows = 3;
  GraphBuilder b("rows");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  b.Output("y", b.Add(ops::Linear(x, b.Constant("w", {DType::kF32, {5, 4}})), "y"),
           RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = kRows;
  // Two groups: one with two places, whose adapters are scaled as a whole, and one with one.
  LowRankPair two = Pair("w", 5, 4, 2, 0.5F);
  two.choices = 3;
  two.places = 2;
  LowRankPair one = Pair("w", 5, 4, 3);
  one.choices = 2;
  one.group = 1;
  const Graph adapted = Must(AdaptProducts(graph, std::vector{two, one}));
  EXPECT_TRUE(Verify(adapted));
  struct Place {
    const LowRankPair& pair;
    int64_t place;
    std::vector<int32_t> ids;
    std::vector<double> factors;
  };
  const Place places[] = {{two, 0, {2, 0, 1}, {1, 0.25, 0}},
                          {two, 1, {0, 1, 1}, {0, -2, 0}},
                          {one, 0, {1, 0, 1}, {3, 0, 0}}};
  const Tensor rows = Floats("x", {kRows, 4});
  std::vector<Binding> inputs = {{"x", rows}};
  for (const LowRankPair* pair : {&two, &one}) {
    std::vector<int32_t> ids;
    std::vector<double> factors;
    for (size_t row = 0; row < kRows; ++row) {
      for (const Place& place : places) {
        if (&place.pair != pair) continue;
        ids.push_back(place.ids[row]);
        factors.push_back(place.factors[row]);
      }
    }
    inputs.emplace_back(adapter_names::Ids(pair->group), Tensor::I32({kRows, pair->places}, ids));
    inputs.emplace_back(adapter_names::Factors(pair->group),
                        Tensor::F32({kRows, pair->places}, factors));
  }
  const Tensor found = RunGraph(adapted, {}, inputs, {kRows, 0}, "y");
  Tensor expected = RunGraph(graph, {}, {{"x", rows}}, {kRows, 0}, "y");
  for (size_t row = 0; row < kRows; ++row) {
    for (const Place& place : places) {
      const Tensor delta = Delta(place.pair, place.ids[row], static_cast<float>(place.factors[row]),
                                 std::span(rows.f).subspan(row * 4, 4));
      for (size_t n = 0; n < 5; ++n) expected.f[row * 5 + n] += delta.f[n];
    }
    for (size_t n = 0; n < 5; ++n) EXPECT_NEAR(found.f[row * 5 + n], expected.f[row * 5 + n], 1e-5);
  }
}

TEST(Adapt, GateAndUpOfRowsThatChooseStayOneOp) {
  using Model = MiniModel;
  LowRankPair gate = Pair("blk.0.gate.weight", Model::kFeedForward, Model::kWidth, 2);
  LowRankPair up = Pair("blk.0.up.weight", Model::kFeedForward, Model::kWidth, 2);
  gate.choices = up.choices = 3;
  const auto count = [&](OpKind kind) {
    return CountOps(Must(AdaptProducts(MiniModel::Build(), std::vector{gate, up})), kind);
  };
  EXPECT_EQ(count(OpKind::kRowAdaptedGeGluLinear), 1);
  EXPECT_EQ(count(OpKind::kRowAdaptedLinear), 0);
  up.group = 1;
  EXPECT_EQ(count(OpKind::kRowAdaptedGeGluLinear), 0);
  EXPECT_EQ(count(OpKind::kRowAdaptedLinear), 2);
}

TEST(Adapt, RowsChooseForWholeMatricesOnly) {
  GraphBuilder b("parts");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  b.Output("y", b.Add(ops::Linear(x, b.Constant("w", {DType::kF32, {3, 4}}, 0)), "y"),
           RowDemand::kAll);
  const Graph graph = Must(std::move(b).Finish());
  LowRankPair pair = Pair("w", 8, 4, 2);
  pair.choices = 2;
  EXPECT_EQ(AdaptProducts(graph, {&pair, 1}).error().id, "adapt.rows");
}

TEST(Adapt, StatesTakeThePlaceOfConstants) {
  LowRankPair pair = Pair("blk.0.q.weight", 8, 8, 2);
  pair.lifetime = Lifetime::kState;
  GraphBuilder b("states");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 8}});
  b.Output("y", b.Add(ops::Linear(x, b.Constant("blk.0.q.weight", {DType::kF32, {8, 8}})), "y"),
           RowDemand::kAll);
  const Graph adapted = Must(AdaptProducts(Must(std::move(b).Finish()), {&pair, 1}));
  const ValueId a = adapted.Find(pair.a);
  ASSERT_NE(a, kNoValue);
  EXPECT_EQ(adapted.value(a).lifetime, Lifetime::kState);
  EXPECT_EQ(adapted.value(adapted.Find(pair.b)).type, pair.BType());
}

TEST(Adapt, WhatDoesNotFitIsAnError) {
  const Graph graph = MiniModel::Build();
  const auto id_of = [&](const LowRankPair& pair) {
    const auto adapted = AdaptProducts(graph, {&pair, 1});
    return adapted ? std::string("none") : adapted.error().id;
  };
  EXPECT_EQ(id_of(Pair("blk.0.q.weight", 8, 7, 1)), "adapt.shape");
  EXPECT_EQ(id_of(Pair("blk.0.q.weight", 7, 8, 1)), "adapt.shape");
  EXPECT_EQ(id_of(Pair("blk.0.q.weight", 8, 8, 0)), "adapt.shape");
  EXPECT_EQ(id_of(Pair("token_embd.weight", 32, 8, 1)), "adapt.op");
  EXPECT_EQ(id_of(Pair("not.there", 8, 8, 1)), "none");
}

}  // namespace
}  // namespace rullama

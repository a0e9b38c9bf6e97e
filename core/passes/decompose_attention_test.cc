// The decompositions of attention over fresh rows and of its derivatives, against the composites in
// float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/must_test_util.h"
#include "core/ir/builder.h"
#include "core/passes/decompose.h"
#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Tensor;

// Five rows, three of which are queries. The second query is of a slot without keys.
Graph AttentionAndGradients(rl_mask mask, int64_t window) {
  const auto f = [](std::initializer_list<Dim> dims) { return TensorType(DType::kF32, dims); };
  const auto i = [](const Dim& rows) { return TensorType(DType::kI32, {rows}); };
  GraphBuilder b("gradients");
  const ValueId q = b.Input("q", f({Dim::R(), 4, 8}));
  const ValueId k = b.Input("k", f({Dim::T(), 2, 8}));
  const ValueId v = b.Input("v", f({Dim::T(), 2, 8}));
  const ValueId dy = b.Input("dy", f({Dim::R(), 4, 8}));
  const ValueId q_pos = b.Input("q_pos", i(Dim::R()));
  const ValueId q_slot = b.Input("q_slot", i(Dim::R()));
  const ValueId kv_pos = b.Input("kv_pos", i(Dim::T()));
  const ValueId kv_slot = b.Input("kv_slot", i(Dim::T()));
  const auto with_rows = [&](auto op) {
    op.q = q;
    op.k_new = k;
    op.q_pos = q_pos;
    op.q_slot = q_slot;
    op.kv_pos = kv_pos;
    op.kv_slot = kv_slot;
    op.mask = mask;
    op.window = window;
    op.scale = 0.4F;
    return op;
  };
  const ValueId y = b.Add(with_rows(ops::Attention{.v_new = v}), "y");
  const ValueId lse = b.Add(with_rows(ops::AttentionStats{}), "lse");
  const ValueId dq =
      b.Add(with_rows(ops::AttentionGradQ{.v_new = v, .y = y, .lse = lse, .dy = dy}), "dq");
  const auto [dk, dv] =
      b.Add(with_rows(ops::AttentionGradKv{.v_new = v, .y = y, .lse = lse, .dy = dy}), "dkv");
  for (const ValueId value : {y, lse, dq, dk, dv}) {
    b.Output(b.graph().value(value).name, value, RowDemand::kAll);
  }
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = 5;
  graph.max_r = 3;
  return graph;
}

reference::Interpreter RunOnRandomNumbers(const Graph& graph) {
  const auto no_constants = [](std::string_view, int64_t, const TensorType&) -> Result<Tensor> {
    return MakeError(ErrorKind::kRuntime, "test.constant", "the graph has no constants");
  };
  auto interpreter = Must(reference::Interpreter::Create(graph, no_constants));
  std::mt19937_64 random(3);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same numbers each run
  std::normal_distribution<double> normal;
  for (const char* name : {"q", "k", "v", "dy"}) {
    Tensor tensor = reference::MakeZeros(
        DType::kF32, reference::DimsAt(graph.type(graph.Find(name)), {.t = 5, .r = 3}));
    for (double& value : tensor.f) value = normal(random);
    EXPECT_TRUE(interpreter.Bind(name, std::move(tensor)).has_value());
  }
  const auto bind = [&](const char* name, const std::vector<int32_t>& numbers) {
    const auto rows = static_cast<int64_t>(numbers.size());
    EXPECT_TRUE(interpreter.Bind(name, Tensor::I32({rows}, numbers)).has_value());
  };
  bind("q_pos", {1, 1, 2});
  bind("q_slot", {0, 2, 0});
  bind("kv_pos", {0, 0, 1, 1, 2});
  bind("kv_slot", {0, 1, 0, 1, 0});
  const Status status = interpreter.Run({.t = 5, .r = 3});
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  return interpreter;
}

TEST(DecomposeAttention, GivesTheValuesOfTheComposites) {
  for (const auto& [mask, window] :
       {std::pair{RL_MASK_CAUSAL, 0}, std::pair{RL_MASK_CAUSAL, 2}, std::pair{RL_MASK_CANVAS, 0}}) {
    const Graph whole = AttentionAndGradients(mask, window);
    const Graph parts = Must(DecomposeAll(whole));
    const auto expected = RunOnRandomNumbers(whole);
    const auto found = RunOnRandomNumbers(parts);
    for (const Output& output : whole.outputs) {
      const Tensor& a = *expected.GetOutput(output.name);
      const Tensor& b = *found.GetOutput(output.name);
      ASSERT_EQ(a.dims, b.dims) << output.name;
      for (size_t i = 0; i < a.f.size(); ++i) {
        EXPECT_NEAR(a.f[i], b.f[i], 1e-12) << output.name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace rullama

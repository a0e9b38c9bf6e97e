// Each scaled graph is run by the float64 reference and compared with the graph as it was, on
// weights that are multiplied by their factors.
#include "core/passes/scale_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/ir/verify.h"
#include "core/passes/mini_model_for_test.h"
#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::Tensor;

// Numbers that depend on the name of a constant, times its factor in `scales`.
Tensor ScaledConstant(std::span<const WeightScale> scales, std::string_view source,
                      const TensorType& type) {
  double factor = 1;
  for (const WeightScale& scale : scales) {
    if (scale.weight == source) factor = scale.scale;
  }
  Tensor tensor = reference::MakeZeros(type.dtype, reference::DimsAt(type, {}));
  std::mt19937_64 random(std::hash<std::string_view>{}(source));
  std::normal_distribution<double> normal(0, 0.7);
  for (double& value : tensor.f) value = static_cast<float>(normal(random)) * factor;
  return tensor;
}

// The logits of three rows of MiniModel.
Tensor Logits(const Graph& graph, std::span<const WeightScale> scales) {
  Interpreter interpreter = Must(Interpreter::Create(
      graph, [scales](std::string_view source, int64_t first_row, const TensorType& type) {
        EXPECT_EQ(first_row, 0);
        return Result<Tensor>(ScaledConstant(scales, source, type));
      }));
  const std::pair<const char*, Tensor> inputs[] = {
      {"tokens", Tensor::I32({3}, {3, 7, 1})}, {"pos", Tensor::I32({3}, {0, 1, 2})},
      {"slot", Tensor::I32({3}, {0, 0, 0})},   {"past", Tensor::I32({2}, {0, 0})},
      {"rows", Tensor::I32({2}, {1, 2})},      {"seed", Tensor::I32({2}, {1, 2})}};
  for (const auto& [name, tensor] : inputs) EXPECT_TRUE(interpreter.Bind(name, tensor));
  EXPECT_TRUE(interpreter.Run({3, 2}));
  return *interpreter.GetOutput("logits");
}

TEST(ScaleProducts, MultipliesTheWeights) {
  const Graph graph = MiniModel::Build();
  const std::vector<WeightScale> scales = {{"blk.0.q.weight", 0.5F},
                                           {"blk.1.up.weight", -2.0F},
                                           {"blk.2.ple_proj.weight", 3.0F},
                                           {"nowhere.weight", 7.0F}};
  const Graph scaled = Must(ScaleProducts(graph, scales));
  EXPECT_TRUE(Verify(scaled));
  // Composites without a scaled weight stay whole.
  EXPECT_EQ(CountOps(scaled, OpKind::kGeGluLinear), CountOps(graph, OpKind::kGeGluLinear) - 1);
  EXPECT_NE(scaled.Find("blk.0.q.m/unscaled"), kNoValue);
  const Tensor found = Logits(scaled, {}), expected = Logits(graph, scales);
  const Tensor base = Logits(graph, {});
  ASSERT_EQ(found.f.size(), expected.f.size());
  double worst = 0, change = 0;
  for (size_t i = 0; i < expected.f.size(); ++i) {
    worst = std::max(worst, std::abs(found.f[i] - expected.f[i]));
    change = std::max(change, std::abs(base.f[i] - expected.f[i]));
  }
  EXPECT_LT(worst, 1e-5);
  EXPECT_GT(change, 1e-2);
}

TEST(ScaleProducts, RefusesOtherUses) {
  GraphBuilder b("sum");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), 4}});
  const ValueId vector = b.Constant("v", {DType::kF32, {4}});
  b.Output("y", b.Add(ops::RmsNorm{.x = x, .weight = vector, .eps = 1e-6F}, "y"), RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = 2;
  const WeightScale scale{"v", 2};
  EXPECT_EQ(ScaleProducts(graph, {&scale, 1}).error().id, "scale.op");
}

}  // namespace
}  // namespace rullama

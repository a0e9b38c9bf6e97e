// The losses and derivatives against their decompositions, at their edges.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/ir/builder.h"
#include "core/ir/verify.h"
#include "core/passes/decompose.h"
#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Tensor;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
// Attributes such as 1 / cap are float.
constexpr double kSameWithin = 1e-6;

struct Bound {
  std::string name;
  Tensor tensor;
};

Result<Tensor> SineWeight(std::string_view, int64_t, const TensorType& type) {
  Tensor tensor = reference::MakeZeros(type.dtype, reference::DimsAt(type, {}));
  for (size_t i = 0; i < tensor.f.size(); ++i) {
    tensor.f[i] = std::sin(static_cast<double>(i) * 1.7 + 0.3);
  }
  return tensor;
}

std::vector<Tensor> OutputsOf(const Graph& graph, const std::vector<Bound>& inputs) {
  reference::Interpreter interpreter = Must(reference::Interpreter::Create(graph, SineWeight));
  for (const Bound& input : inputs) {
    EXPECT_TRUE(interpreter.Bind(input.name, input.tensor)) << input.name;
  }
  const Status status = interpreter.Run({graph.max_t, 0});
  EXPECT_TRUE(status) << status.error().ToString();
  std::vector<Tensor> tensors;
  for (const Output& output : graph.outputs) {
    tensors.push_back(*interpreter.GetOutput(output.name));
  }
  return tensors;
}

// `add` adds the op to a graph with these inputs and returns its results.
template <typename Add>
void ExpectSameAsItsParts(const std::vector<Bound>& inputs, Add add) {
  GraphBuilder b("one");
  std::vector<ValueId> ids;
  for (const Bound& input : inputs) {
    TensorType type;
    type.dtype = input.tensor.dtype;
    type.rank = static_cast<int>(input.tensor.dims.size());
    for (int axis = 0; axis < type.rank; ++axis) {
      type.dim(axis) = input.tensor.dims[static_cast<size_t>(axis)];
    }
    if (input.tensor.dims[0] == inputs[0].tensor.dims[0]) type.dim(0) = Dim::T();
    ids.push_back(b.Input(input.name, type));
  }
  for (const ValueId result : add(b, ids)) {
    b.Output(b.graph().value(result).name, result, RowDemand::kAll);
  }
  Graph whole = Must(std::move(b).Finish());
  whole.max_t = inputs[0].tensor.dims[0];
  const Graph parts = Must(DecomposeAll(whole));
  EXPECT_GT(parts.ops.size(), 1u);
  const Status verified = Verify(parts);
  ASSERT_TRUE(verified) << verified.error().ToString();
  const auto expected = OutputsOf(whole, inputs);
  const auto found = OutputsOf(parts, inputs);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(parts.value(parts.outputs[i].value).name, whole.value(whole.outputs[i].value).name);
    ASSERT_EQ(found[i].dims, expected[i].dims);
    for (size_t j = 0; j < expected[i].f.size(); ++j) {
      const double e = expected[i].f[j], f = found[i].f[j];
      const bool same = std::isfinite(e)
                            ? std::abs(f - e) <= kSameWithin * std::max(1.0, std::abs(e))
                            : e == f || (std::isnan(e) && std::isnan(f));
      EXPECT_TRUE(same) << whole.outputs[i].name << " element " << j << ": " << f << " instead of "
                        << e;
    }
  }
}

Tensor F32Of(std::vector<int64_t> dims, std::vector<double> values) {
  return Tensor::F32(std::move(dims), std::move(values));
}

const Tensor kLogits = F32Of(
    {9, 3}, {1e30,       1e30,       -1e30,       0,           -kInfinite, 1,          -kInfinite,
             -kInfinite, -kInfinite, kNotANumber, kNotANumber, kInfinite,  -kInfinite, kNotANumber,
             -kInfinite, -kInfinite, kNotANumber, 0,           kInfinite,  0,          1,
             1,          2,          3,           100,         -100,       0});
const Tensor kTargets = Tensor::I32({9}, {0, 1, 2, 3, 0, INT32_MIN, 2, INT32_MAX, 1});

TEST(DecomposeTraining, CrossEntropy) {
  ExpectSameAsItsParts(
      {{"z", kLogits}, {"t", kTargets}}, [](GraphBuilder& b, const std::vector<ValueId>& in) {
        return std::vector{b.Add(ops::CrossEntropy{.logits = in[0], .targets = in[1]}, "y")};
      });
  ExpectSameAsItsParts(
      {{"z", kLogits}, {"t", kTargets}, {"factor", F32Of({1}, {0.25})}},
      [](GraphBuilder& b, const std::vector<ValueId>& in) {
        return std::vector{
            b.Add(ops::CrossEntropyGrad{.logits = in[0], .targets = in[1], .factor = in[2]}, "y")};
      });
}

TEST(DecomposeTraining, LinearCrossEntropy) {
  const Tensor x = F32Of({4, 2}, {1, -2, kNotANumber, 1, 300, -200, 0.5, kInfinite});
  const Tensor targets = Tensor::I32({4}, {4, -1, 0, 5});
  for (const float cap : {0.0F, 3.0F}) {
    ExpectSameAsItsParts(
        {{"x", x}, {"t", targets}, {"factor", F32Of({1}, {0.25})}},
        [cap](GraphBuilder& b, const std::vector<ValueId>& in) {
          const auto results =
              b.Add(ops::LinearCrossEntropy{.x = in[0],
                                            .weight = b.Constant("w", {DType::kF32, {5, 2}}),
                                            .targets = in[1],
                                            .factor = in[2],
                                            .cap = cap},
                    "y");
          return std::vector{results.loss, results.dx};
        });
  }
}

TEST(DecomposeTraining, SoftmaxGrad) {
  ExpectSameAsItsParts(
      {{"y", F32Of({3, 3}, {0.5, 0, 0.5, 0, 0, 0, 0.25, 0.5, 0.25})},
       {"dy", F32Of({3, 3}, {1, kNotANumber, 3, kInfinite, -kInfinite, 1, -1, 5, 2})}},
      [](GraphBuilder& b, const std::vector<ValueId>& in) {
        return std::vector{b.Add(ops::SoftmaxGrad{.y = in[0], .dy = in[1]}, "dx")};
      });
}

TEST(DecomposeTraining, RmsNormGrad) {
  const std::vector<Bound> inputs = {{"x", F32Of({3, 2}, {1, -2, 0, 0, 1e-4, 3e-4})},
                                     {"dy", F32Of({3, 2}, {0.5, 2, 1, -1, 3, 2})}};
  for (const bool weighted : {false, true}) {
    ExpectSameAsItsParts(inputs, [weighted](GraphBuilder& b, const std::vector<ValueId>& in) {
      const ValueId weight = weighted ? b.Constant("w", {DType::kF32, {2}}) : kNoValue;
      return std::vector{
          b.Add(ops::RmsNormGrad{.x = in[0], .dy = in[1], .weight = weight, .eps = 1e-6F}, "dx")};
    });
  }
}

TEST(DecomposeTraining, GeGluGrad) {
  ExpectSameAsItsParts({{"gate", F32Of({2, 3}, {0.5, -30, 30, 1e30, -1e30, -1})},
                        {"up", F32Of({2, 3}, {1, 2, -3, 0.5, 4, 2})},
                        {"dy", F32Of({2, 3}, {0.5, 1, 2, -1, 1, 3})}},
                       [](GraphBuilder& b, const std::vector<ValueId>& in) {
                         const auto results =
                             b.Add(ops::GeGluGrad{.gate = in[0], .up = in[1], .dy = in[2]}, "y");
                         return std::vector{results.dgate, results.dup};
                       });
}

}  // namespace
}  // namespace rullama

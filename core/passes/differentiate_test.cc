// Derivatives against central differences of the forward graph, both in float64, and what the pass
// leaves out, computes again and refuses.
#include "core/passes/differentiate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/ir/verify.h"
#include "core/passes/adapt.h"
#include "core/passes/memory_plan.h"
#include "core/passes/mini_model_for_test.h"
#include "core/passes/row_demand.h"
#include "core/passes/schedule.h"
#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::Tensor;

constexpr int64_t kRows = 3;
constexpr Extents kExtents = {kRows, 2};
constexpr double kStep = 1e-5;
// Tolerance relative to the largest gradient. Central differences of float64 are good to about
// 1e-9.
constexpr double kGradientTolerance = 1e-6;
// States are stored as f32, so their step is larger, and its square is the error of differences.
constexpr double kStateStep = 0x1p-12;
constexpr double kStateTolerance = 1e-5;

using Integers = std::vector<std::pair<std::string, std::vector<int32_t>>>;

Tensor DrawnByName(std::string_view name, const TensorType& type, const Extents& extents) {
  Tensor tensor = reference::MakeZeros(type.dtype, reference::DimsAt(type, extents));
  std::mt19937_64 random(std::hash<std::string_view>{}(name));
  std::normal_distribution<double> normal(0, 1);
  for (double& value : tensor.f) value = static_cast<float>(normal(random));
  return tensor;
}

// A graph with all leaves bound: floats drawn by name, integers as given.
Interpreter BindAll(const Graph& graph, const Integers& integers) {
  Interpreter interpreter =
      Must(Interpreter::Create(graph, [](std::string_view source, int64_t, const TensorType& type) {
        return Result<Tensor>(DrawnByName(source, type, {}));
      }));
  for (const Value& value : graph.values) {
    if (value.producer != kNoOp) continue;
    if (value.lifetime == Lifetime::kState && !value.name.ends_with("/grad")) {
      EXPECT_TRUE(interpreter.WriteState(value.name, DrawnByName(value.name, value.type, {})));
    }
    if (value.lifetime != Lifetime::kInput || value.type.dtype == DType::kI32) continue;
    EXPECT_TRUE(interpreter.Bind(value.name, DrawnByName(value.name, value.type, kExtents)));
  }
  for (const auto& [name, values] : integers) {
    const ValueId id = graph.Find(name);
    if (id == kNoValue) continue;
    EXPECT_TRUE(
        interpreter.Bind(name, Tensor::I32(reference::DimsAt(graph.type(id), kExtents), values)));
  }
  return interpreter;
}

// sum(dy * y) of one run.
double LossOf(Interpreter& interpreter, const Tensor& dy) {
  const Status status = interpreter.Run(kExtents);
  EXPECT_TRUE(status.has_value()) << status.error().ToString();
  const Tensor& y = *interpreter.GetOutput("y");
  double loss = 0;
  for (size_t i = 0; i < y.f.size(); ++i) loss += dy.f[i] * y.f[i];
  return loss;
}

void ExpectNear(const std::vector<double>& found, const std::vector<double>& expected,
                const std::string& what, double tolerance = kGradientTolerance) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 1e-3;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], tolerance * largest) << what << " at " << i;
  }
}

// The central differences of the loss by the elements of an input or a state.
std::vector<double> Differences(const Graph& graph, const std::string& name,
                                const Integers& integers, const Tensor& dy) {
  Interpreter interpreter = BindAll(graph, integers);
  const Value& value = graph.value(graph.Find(name));
  const auto set = [&](const Tensor& tensor) {
    if (value.lifetime == Lifetime::kState) return interpreter.WriteState(name, tensor);
    return interpreter.Bind(name, tensor);
  };
  Tensor x = DrawnByName(name, value.type, kExtents);
  const bool is_state = value.lifetime == Lifetime::kState;
  const auto stored = [&](double x_i) { return is_state ? static_cast<float>(x_i) : x_i; };
  const double step = is_state ? kStateStep : kStep;
  std::vector<double> differences;
  for (double& element : x.f) {
    const double kept = element;
    const double high = element = stored(kept + step);
    EXPECT_TRUE(set(x));
    const double above = LossOf(interpreter, dy);
    const double low = element = stored(kept - step);
    EXPECT_TRUE(set(x));
    const double below = LossOf(interpreter, dy);
    element = kept;
    differences.push_back((above - below) / (high - low));
  }
  return differences;
}

// A graph with the output y, and what its derivative is taken by: inputs and states.
struct Case {
  const char* name;
  std::function<ValueId(GraphBuilder&)> build;
  std::vector<std::string> inputs = {};
  std::vector<std::string> states = {};
  Integers integers = {};
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

Graph BuildCase(const Case& test) {
  GraphBuilder b("case");
  b.Output("y", test.build(b), RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = kExtents.t;
  graph.max_r = kExtents.r;
  return graph;
}

Differentiation By(const Graph& graph, const Case& test) {
  Differentiation what;
  what.seeds = {{graph.value(graph.outputs[0].value).name, "dy"}};
  what.parameters = test.states;
  what.observed = test.inputs;
  return what;
}

class DerivativeTest : public testing::TestWithParam<Case> {};

TEST_P(DerivativeTest, EqualsDifferences) {
  const Case& test = GetParam();
  const Graph graph = BuildCase(test);
  const Graph backward = Must(Differentiate(graph, By(graph, test)));
  const Status valid = Verify(backward);
  ASSERT_TRUE(valid.has_value()) << valid.error().ToString();
  Interpreter interpreter = BindAll(backward, test.integers);
  const Status status = interpreter.Run(kExtents);
  ASSERT_TRUE(status.has_value()) << status.error().ToString();
  const Tensor dy = DrawnByName("dy", graph.type(graph.outputs[0].value), kExtents);
  for (const std::string& name : test.inputs) {
    ExpectNear(interpreter.GetOutput(GradientOf(name))->f,
               Differences(graph, name, test.integers, dy), name);
  }
  for (const std::string& name : test.states) {
    ExpectNear(Must(interpreter.ReadState(GradientOf(name))).f,
               Differences(graph, name, test.integers, dy), name, kStateTolerance);
  }
}

ValueId Rows(GraphBuilder& b, const char* name, std::initializer_list<int64_t> inner) {
  TensorType type(DType::kF32, {Dim::T()});
  for (const int64_t dim : inner) type.dim(type.rank++) = dim;
  return b.Input(name, type);
}

Case UnaryCase(const char* name, rl_unary fn, bool positive = false) {
  const auto build = [fn, positive](GraphBuilder& b) {
    ValueId x = Rows(b, "x", {4});
    if (positive) x = b.Add(ops::Unary{.x = x, .fn = RL_UNARY_EXP}, "positive");
    return b.Add(ops::Unary{.x = x, .fn = fn}, "y");
  };
  return {name, build, {"x"}};
}

Case BinaryCase(const char* name, rl_binary fn, std::initializer_list<int64_t> b_dims) {
  const std::vector<int64_t> dims = b_dims;
  const auto build = [fn, dims](GraphBuilder& b) {
    TensorType type(DType::kF32, {Dim::T()});
    for (const int64_t dim : dims) type.dim(type.rank++) = dim;
    const ValueId a = Rows(b, "a", {2, 4});
    return b.Add(ops::Binary{.a = a, .b = b.Input("b", type), .fn = fn}, "y");
  };
  return {name, build, {"a", "b"}};
}

ops::AttentionRows StepRowsOf(GraphBuilder& b) {
  const TensorType rows(DType::kI32, {Dim::T()});
  const ValueId pos = b.Input("pos", rows);
  const ValueId slot = b.Input("slot", rows);
  return {pos, slot, pos, slot, kNoValue};
}

std::vector<Case> StructureCases() {
  return {
      {"reshape",
       [](GraphBuilder& b) {
         return b.Add(ops::ReshapeTo(Rows(b, "x", {4, 3}), {2, 3, 2}), "y");
       },
       {"x"}},
      {"slice",
       [](GraphBuilder& b) {
         return b.Add(ops::Slice{.x = Rows(b, "x", {5, 2}), .axis = 1, .start = 1, .size = 3}, "y");
       },
       {"x"}},
      {"concat",
       [](GraphBuilder& b) {
         return b.Add(ops::Concat{.a = Rows(b, "a", {2, 3}), .b = Rows(b, "b", {4, 3}), .axis = 1},
                      "y");
       },
       {"a", "b"}},
      {"gather_rows",
       [](GraphBuilder& b) {
         const ValueId ids = b.Input("ids", {DType::kI32, {Dim::R()}});
         return b.Add(ops::GatherRows{.table = Rows(b, "x", {4}), .ids = ids}, "y");
       },
       {"x"},
       {},
       {{"ids", {2, 2}}}},
      {"gather_last",
       [](GraphBuilder& b) {
         const ValueId index = b.Input("index", {DType::kI32, {Dim::T()}});
         return b.Add(ops::GatherLast{.x = Rows(b, "x", {4}), .index = index}, "y");
       },
       {"x"},
       {},
       {{"index", {3, 0, 2}}}},
      {"topk",
       [](GraphBuilder& b) { return b.Add(ops::TopK{.x = Rows(b, "x", {6}), .k = 2}, "y").values; },
       {"x"}},
      {"copy", [](GraphBuilder& b) { return b.Add(ops::Copy{Rows(b, "x", {4})}, "y"); }, {"x"}},
  };
}

std::vector<Case> PointwiseCases() {
  std::vector<Case> cases = {
      UnaryCase("neg", RL_UNARY_NEG),
      UnaryCase("abs", RL_UNARY_ABS),
      UnaryCase("exp", RL_UNARY_EXP),
      UnaryCase("log", RL_UNARY_LOG, true),
      UnaryCase("sqrt", RL_UNARY_SQRT, true),
      UnaryCase("rsqrt", RL_UNARY_RSQRT, true),
      UnaryCase("tanh", RL_UNARY_TANH),
      UnaryCase("sigmoid", RL_UNARY_SIGMOID),
      UnaryCase("gelu_tanh", RL_UNARY_GELU_TANH),
      UnaryCase("silu", RL_UNARY_SILU),
      UnaryCase("square", RL_UNARY_SQUARE),
      BinaryCase("add", RL_BINARY_ADD, {2, 4}),
      BinaryCase("add_to_rows", RL_BINARY_ADD, {1, 1}),
      BinaryCase("sub", RL_BINARY_SUB, {2, 1}),
      BinaryCase("mul", RL_BINARY_MUL, {2, 4}),
      BinaryCase("mul_by_rows", RL_BINARY_MUL, {1, 1}),
      BinaryCase("div", RL_BINARY_DIV, {2, 1}),
      BinaryCase("min", RL_BINARY_MIN, {2, 4}),
      BinaryCase("max", RL_BINARY_MAX, {2, 1}),
  };
  cases.push_back({"scale",
                   [](GraphBuilder& b) {
                     const ValueId w = b.Constant("w", {DType::kF32, {4}});
                     return b.Add(ops::Scale{.x = Rows(b, "x", {4}), .weight = w}, "y");
                   },
                   {"x"}});
  cases.push_back({"affine",
                   [](GraphBuilder& b) {
                     return b.Add(ops::Affine{.x = Rows(b, "x", {4}), .scale = 3, .bias = 2}, "y");
                   },
                   {"x"}});
  const auto condition = [](GraphBuilder& b, ValueId like) {
    return b.Add(ops::Binary{.a = b.Input("c", b.graph().type(like)),
                             .b = b.Input("d", b.graph().type(like)),
                             .fn = RL_BINARY_LT},
                 "condition");
  };
  cases.push_back({"select",
                   [condition](GraphBuilder& b) {
                     const ValueId x = Rows(b, "x", {4});
                     return b.Add(ops::Select{.condition = condition(b, x), .a = x, .otherwise = 7},
                                  "y");
                   },
                   {"x"}});
  cases.push_back({"where",
                   [condition](GraphBuilder& b) {
                     const ValueId x = Rows(b, "x", {4});
                     return b.Add(
                         ops::Where{.condition = condition(b, x), .a = x, .b = Rows(b, "z", {4})},
                         "y");
                   },
                   {"x", "z"}});
  for (const rl_reduce fn : {RL_REDUCE_SUM, RL_REDUCE_MAX, RL_REDUCE_MEAN}) {
    const char* name = fn == RL_REDUCE_SUM   ? "reduce_sum"
                       : fn == RL_REDUCE_MAX ? "reduce_max"
                                             : "reduce_mean";
    cases.push_back({name,
                     [fn](GraphBuilder& b) {
                       return b.Add(ops::Reduce{.x = Rows(b, "x", {5}), .fn = fn}, "y");
                     },
                     {"x"}});
  }
  cases.push_back({"softmax",
                   [](GraphBuilder& b) {
                     return b.Add(ops::Softmax{Rows(b, "x", {2, 5})}, "y");
                   },
                   {"x"}});
  cases.push_back(
      {"softcap",
       [](GraphBuilder& b) { return b.Add(ops::Softcap{.x = Rows(b, "x", {5}), .cap = 2}, "y"); },
       {"x"}});
  return cases;
}

std::vector<Case> LayerCases() {
  const auto constant = [](GraphBuilder& b, const char* name, std::initializer_list<Dim> dims) {
    return b.Constant(name, {DType::kF32, dims});
  };
  std::vector<Case> cases;
  cases.push_back({"linear",
                   [](GraphBuilder& b) {
                     const ValueId w = b.State("w", {DType::kF32, {5, 4}});
                     return b.Add(ops::Linear(Rows(b, "x", {4}), w), "y");
                   },
                   {"x"},
                   {"w"}});
  cases.push_back({"matmul_as_stored",
                   [](GraphBuilder& b) {
                     const ValueId w = b.State("w", {DType::kF32, {4, 5}});
                     return b.Add(ops::MatMul{.x = Rows(b, "x", {4}), .weight = w}, "y");
                   },
                   {"x"},
                   {"w"}});
  cases.push_back({"a_parameter_used_twice",
                   [](GraphBuilder& b) {
                     const ValueId w = b.State("w", {DType::kF32, {4, 4}});
                     const ValueId h = b.Add(ops::Linear(Rows(b, "x", {4}), w), "h");
                     return b.Add(ops::Linear(h, w), "y");
                   },
                   {"x"},
                   {"w"}});
  cases.push_back({"a_value_used_three_times",
                   [](GraphBuilder& b) {
                     const ValueId x = Rows(b, "x", {4});
                     return b.Add(ops::Product(b.Add(ops::Product(x, x), "square"), x), "y");
                   },
                   {"x"}});
  for (const bool shared : {true, false}) {
    cases.push_back({shared ? "grouped_matmul_shared" : "grouped_matmul",
                     [=](GraphBuilder& b) {
                       const ValueId x = shared ? Rows(b, "x", {4}) : Rows(b, "x", {2, 4});
                       const ValueId w = constant(b, "w", {3, 5, 4});
                       const ValueId e = b.Input("experts", {DType::kI32, {Dim::T(), 2}});
                       return b.Add(ops::GroupedMatMul{.x = x, .weight = w, .experts = e}, "y");
                     },
                     {"x"},
                     {},
                     {{"experts", {0, 2, 1, 0, 2, 1}}}});
  }
  cases.push_back({"rms_norm",
                   [=](GraphBuilder& b) {
                     const ValueId w = constant(b, "w", {4});
                     const ValueId x = Rows(b, "x", {2, 4});
                     return b.Add(ops::RmsNorm{.x = x, .weight = w, .eps = 1e-6F}, "y");
                   },
                   {"x"}});
  cases.push_back({"residual_norm",
                   [=](GraphBuilder& b) {
                     return b.Add(ops::ResidualNorm{.residual = Rows(b, "residual", {4}),
                                                    .x = Rows(b, "x", {4}),
                                                    .weight = constant(b, "w", {4}),
                                                    .scale = constant(b, "scale", {1}),
                                                    .eps = 1e-6F},
                                  "y");
                   },
                   {"residual", "x"}});
  cases.push_back({"geglu",
                   [](GraphBuilder& b) {
                     return b.Add(
                         ops::GeGlu{.gate = Rows(b, "gate", {4}), .up = Rows(b, "up", {4})}, "y");
                   },
                   {"gate", "up"}});
  cases.push_back({"geglu_linear",
                   [=](GraphBuilder& b) {
                     return b.Add(ops::GeGluLinear{.x = Rows(b, "x", {4}),
                                                   .gate_weight = constant(b, "gate", {3, 4}),
                                                   .up_weight = constant(b, "up", {3, 4})},
                                  "y");
                   },
                   {"x"}});
  cases.push_back({"adapted_linear",
                   [=](GraphBuilder& b) {
                     return b.Add(ops::AdaptedLinear{.x = Rows(b, "x", {4}),
                                                     .weight = constant(b, "w", {3, 4}),
                                                     .a = constant(b, "a", {2, 4}),
                                                     .b = constant(b, "b", {3, 2})},
                                  "y");
                   },
                   {"x"}});
  cases.push_back({"adapted_geglu_linear",
                   [=](GraphBuilder& b) {
                     return b.Add(
                         ops::AdaptedGeGluLinear{.x = Rows(b, "x", {4}),
                                                 .gate_weight = constant(b, "gate", {3, 4}),
                                                 .gate_a = constant(b, "gate_a", {2, 4}),
                                                 .gate_b = constant(b, "gate_b", {3, 2}),
                                                 .up_weight = constant(b, "up", {3, 4}),
                                                 .up_a = constant(b, "up_a", {1, 4}),
                                                 .up_b = constant(b, "up_b", {3, 1})},
                         "y");
                   },
                   {"x"}});
  cases.push_back({"rope",
                   [](GraphBuilder& b) {
                     const ValueId pos = b.Input("pos", {DType::kI32, {Dim::T()}});
                     return b.Add(
                         ops::Rope{.x = Rows(b, "x", {2, 6}), .pos = pos, .theta = 100, .n_rot = 4},
                         "y");
                   },
                   {"x"},
                   {},
                   {{"pos", {0, 3, 7}}}});
  for (const int64_t window : {0, 2}) {
    cases.push_back({window == 0 ? "attention" : "attention_with_window",
                     [=](GraphBuilder& b) {
                       return b.Add(ops::WithRows(ops::Attention{.q = Rows(b, "q", {4, 5}),
                                                                 .k_new = Rows(b, "k", {2, 5}),
                                                                 .v_new = Rows(b, "v", {2, 5}),
                                                                 .window = window,
                                                                 .scale = 0.7F},
                                                  StepRowsOf(b)),
                                    "y");
                     },
                     {"q", "k", "v"},
                     {},
                     {{"pos", {0, 1, 2}}, {"slot", {0, 0, 0}}}});
  }
  cases.push_back({"attention_of_two_slots",
                   [](GraphBuilder& b) {
                     return b.Add(ops::WithRows(ops::Attention{.q = Rows(b, "q", {2, 3}),
                                                               .k_new = Rows(b, "k", {2, 3}),
                                                               .v_new = Rows(b, "v", {2, 3}),
                                                               .scale = 1},
                                                StepRowsOf(b)),
                                  "y");
                   },
                   {"q", "k", "v"},
                   {},
                   {{"pos", {0, 1, 0}}, {"slot", {0, 0, 1}}}});
  cases.push_back(
      {"keys_and_values_of_two_attentions",
       [](GraphBuilder& b) {
         const ops::AttentionRows rows = StepRowsOf(b);
         const ValueId k = Rows(b, "k", {1, 4});
         const ValueId v = Rows(b, "v", {1, 4});
         const auto attend = [&](const char* q, const char* name) {
           return b.Add(
               ops::WithRows(
                   ops::Attention{.q = Rows(b, q, {2, 4}), .k_new = k, .v_new = v, .scale = 1},
                   rows),
               name);
         };
         return b.Add(ops::Product(attend("q1", "first"), attend("q2", "second")), "y");
       },
       {"k", "v", "q1", "q2"},
       {},
       {{"pos", {0, 1, 2}}, {"slot", {0, 0, 0}}}});
  cases.push_back({"ple_inject",
                   [=](GraphBuilder& b) {
                     return b.Add(ops::PleInject{.x = Rows(b, "x", {4}),
                                                 .ple = Rows(b, "ple", {3}),
                                                 .gate_weight = constant(b, "gate", {3, 4}),
                                                 .proj_weight = constant(b, "proj", {4, 3}),
                                                 .norm_weight = constant(b, "norm", {4}),
                                                 .scale = constant(b, "scale", {1}),
                                                 .eps = 1e-6F},
                                  "y");
                   },
                   {"x", "ple"}});
  cases.push_back({"moe_ffn",
                   [=](GraphBuilder& b) {
                     return b.Add(
                         ops::MoeFfn{.x = Rows(b, "x", {4}),
                                     .weights = Rows(b, "weights", {2}),
                                     .experts = b.Input("experts", {DType::kI32, {Dim::T(), 2}}),
                                     .gate_weight = constant(b, "gate_up", {3, 6, 4}),
                                     .down_weight = constant(b, "down", {3, 4, 3}),
                                     .expert_scale = constant(b, "scale", {3})},
                         "y");
                   },
                   {"x", "weights"},
                   {},
                   {{"experts", {0, 2, 1, 0, 2, 1}}}});
  return cases;
}

const auto kCaseName = [](const testing::TestParamInfo<Case>& test) {
  return std::string(test.param.name);
};
INSTANTIATE_TEST_SUITE_P(Structure, DerivativeTest, testing::ValuesIn(StructureCases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Pointwise, DerivativeTest, testing::ValuesIn(PointwiseCases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Layers, DerivativeTest, testing::ValuesIn(LayerCases()), kCaseName);

// ---- whole graphs ----

constexpr int64_t kWidth = 8;
constexpr int64_t kLayers = 4;

// Layers that normalise, multiply with a weight and add: h0 is the input, h1 to h4 what the layers
// give.
Graph Layers() {
  GraphBuilder b("layers");
  ValueId h = b.Add(ops::Affine{.x = Rows(b, "x", {kWidth}), .scale = 2, .bias = 0}, "h0");
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    const ValueId norm = b.Add(ops::RmsNorm{.x = h, .eps = 1e-6F}, name + ".norm");
    const ValueId w = b.Constant(name + ".w", {DType::kF32, {kWidth, kWidth}});
    const ValueId product = b.Add(ops::Linear(norm, w), name + ".product");
    const ValueId bent = b.Add(ops::Unary{.x = product, .fn = RL_UNARY_TANH}, name + ".bent");
    h = b.Add(ops::Sum(h, bent), "h" + std::to_string(i + 1));
  }
  b.Output("y", b.Add(ops::Softcap{.x = h, .cap = 3}, "y"), RowDemand::kAll);
  Graph graph = Must(std::move(b).Finish());
  graph.max_t = kExtents.t;
  graph.max_r = kExtents.r;
  return graph;
}

// The graph with an adapter on the weight of each of these layers, and what to derive.
struct Adapted {
  Graph graph;
  Differentiation what;
};
Adapted WithAdapters(const std::vector<int>& layers) {
  std::vector<LowRankPair> pairs;
  Adapted adapted;
  for (const int layer : layers) {
    const std::string weight = "layer" + std::to_string(layer) + ".w";
    pairs.push_back({.weight = weight,
                     .rank = 3,
                     .inputs = kWidth,
                     .outputs = kWidth,
                     .lifetime = Lifetime::kState,
                     .a = weight + ".a",
                     .b = weight + ".b",
                     .scale = 0.5F});
    adapted.what.parameters.push_back(pairs.back().a);
    adapted.what.parameters.push_back(pairs.back().b);
  }
  adapted.graph = Must(AdaptProducts(Layers(), pairs));
  adapted.what.seeds = {{"y", "dy"}};
  return adapted;
}

std::vector<std::vector<double>> GradientsOf(const Graph& backward, const Differentiation& what) {
  Interpreter interpreter = BindAll(backward, {});
  EXPECT_TRUE(interpreter.Run(kExtents));
  std::vector<std::vector<double>> gradients;
  for (const std::string& name : what.parameters) {
    gradients.push_back(Must(interpreter.ReadState(GradientOf(name))).f);
  }
  return gradients;
}

TEST(Differentiate, AdaptersOfAllLayers) {
  const Adapted adapted = WithAdapters({0, 1, 2, 3});
  const auto gradients =
      GradientsOf(Must(Differentiate(adapted.graph, adapted.what)), adapted.what);
  const Tensor dy = DrawnByName("dy", adapted.graph.type(adapted.graph.Find("y")), kExtents);
  for (size_t i = 0; i < gradients.size(); ++i) {
    ExpectNear(gradients[i], Differences(adapted.graph, adapted.what.parameters[i], {}, dy),
               adapted.what.parameters[i], kStateTolerance);
  }
}

// A value without parameters below it has no gradient; the input of the lowest adapted weight needs
// none.
TEST(Differentiate, NothingIsDerivedBelowTheLowestParameter) {
  const Adapted adapted = WithAdapters({2});
  const Graph backward = Must(Differentiate(adapted.graph, adapted.what));
  for (const Value& value : backward.values) {
    const bool below = value.name.starts_with("layer0") || value.name.starts_with("layer1") ||
                       value.name.starts_with("h");
    EXPECT_FALSE(below && value.name.find("/d.") != std::string::npos) << value.name;
  }
  // Backwards: the softcap (4), layer 3 (tanh 3, product 1, norm 1, sum of h3's gradient 1), tanh
  // of layer 2 (3), the factor of its adapter (1), B (dB and dx) and A (dA only).
  const size_t added = backward.ops.size() - adapted.graph.ops.size();
  EXPECT_EQ(added, 3u + 5u + 1u + 3u + 1u + 2u + 1u);
  EXPECT_EQ(CountOps(backward, OpKind::kGradAccumulate), 2u);
  EXPECT_EQ(CountOps(backward, OpKind::kRmsNormGrad), 1u);
}

TEST(Differentiate, WhatIsComputedAgainGivesTheSameBytesInLessMemory) {
  Adapted adapted = WithAdapters({0, 1, 2, 3});
  adapted.graph.max_t = 4096;
  const Graph kept = Must(Schedule(Must(Differentiate(adapted.graph, adapted.what))));
  const auto gradients = GradientsOf(kept, adapted.what);
  adapted.what.checkpoints = {"h0", "h1", "h2", "h3", "h4"};
  const Graph again = Must(Schedule(Must(Differentiate(adapted.graph, adapted.what))));
  EXPECT_TRUE(Verify(again));
  EXPECT_EQ(GradientsOf(again, adapted.what), gradients);
  EXPECT_EQ(CountOps(kept, OpKind::kRmsNorm), 4u);
  EXPECT_EQ(CountOps(again, OpKind::kRmsNorm), 8u);
  const uint64_t kept_bytes = Must(PlanMemory(kept, {.alignment = 64})).arena_bytes;
  const uint64_t again_bytes = Must(PlanMemory(again, {.alignment = 64})).arena_bytes;
  EXPECT_LT(again_bytes * 3, kept_bytes * 2) << again_bytes << " of " << kept_bytes;
}

TEST(Differentiate, WhatCannotBeDerivedIsNamed) {
  const Case cumsum = {
      "cumsum",
      [](GraphBuilder& b) { return b.Add(ops::CumSum{Rows(b, "x", {4})}, "running"); },
      {"x"}};
  const Graph graph = BuildCase(cumsum);
  const auto refused = Differentiate(graph, By(graph, cumsum));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "train.no_derivative");
  EXPECT_NE(refused.error().message.find("op cumsum 'running'"), std::string::npos)
      << refused.error().message;
  // A weight that is a parameter, where only the other operand has a derivative.
  const Case scale = {
      "scale",
      [](GraphBuilder& b) {
        const ValueId w = b.Add(ops::ReshapeTo(b.Input("w", {DType::kF32, {4}}), {}), "v");
        return b.Add(ops::Scale{.x = Rows(b, "x", {4}), .weight = w}, "scaled");
      },
      {"w"}};
  const Graph scaled = BuildCase(scale);
  const auto by_weight = Differentiate(scaled, By(scaled, scale));
  ASSERT_FALSE(by_weight);
  EXPECT_NE(by_weight.error().message.find("by operand weight"), std::string::npos)
      << by_weight.error().message;
}

TEST(Differentiate, AttentionWithLastVisiblePositionsIsRefused) {
  const Case blocks = {"blocks",
                       [](GraphBuilder& b) {
                         ops::Attention attention{.q = Rows(b, "q", {2, 3}),
                                                  .k_new = Rows(b, "k", {2, 3}),
                                                  .v_new = Rows(b, "v", {2, 3}),
                                                  .scale = 1};
                         attention.q_end = b.Input("end", {DType::kI32, {Dim::T()}});
                         return b.Add(ops::WithRows(attention, StepRowsOf(b)), "y");
                       },
                       {"q"}};
  const Graph graph = BuildCase(blocks);
  const auto refused = Differentiate(graph, By(graph, blocks));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().id, "train.no_derivative");
}

TEST(Differentiate, NamesThatDoNotFitAreErrors) {
  const Adapted adapted = WithAdapters({2});
  const auto id_of = [&](auto change) {
    Differentiation what = adapted.what;
    change(what);
    const auto backward = Differentiate(adapted.graph, what);
    return backward ? std::string("none") : backward.error().id;
  };
  EXPECT_EQ(id_of([](auto&) {}), "none");
  EXPECT_EQ(id_of([](auto& what) { what.parameters = {"not there"}; }), "train.value");
  EXPECT_EQ(id_of([](auto& what) { what.seeds = {{"not there", "dy"}}; }), "train.value");
  EXPECT_EQ(id_of([](auto& what) { what.seeds = {{"y", "layer2.w"}}; }), "train.value");
  EXPECT_EQ(id_of([](auto& what) { what.checkpoints = {"h2", "h1"}; }), "train.value");
  EXPECT_EQ(id_of([](auto& what) { what.seeds = {{"h1", "dh"}}; }), "train.no_path");
  EXPECT_EQ(id_of([](auto& what) {
              what.seeds = {{"h1", "dh"}};
              what.parameters.clear();
              what.observed = {"h2"};
            }),
            "train.no_path");
}

}  // namespace
}  // namespace rullama

// Passes must not change results: every form of a graph is run by the float64 reference and
// compared with the graph as it was built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/base/must_test_util.h"
#include "core/passes/canonicalise.h"
#include "core/passes/decompose.h"
#include "core/passes/mini_model_for_test.h"
#include "core/passes/partition.h"
#include "core/passes/pipeline.h"
#include "core/passes/row_demand.h"
#include "core/passes/schedule.h"
#include "core/passes/wanted_rows.h"
#include "core/reference/interpreter.h"

namespace rullama {
namespace {

using reference::Interpreter;
using reference::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Decompositions round differently from composites. Both compute in float64, but attributes such as
// ln(p) are float, so the tolerance is not tighter.
constexpr double kTolerance = 1e-6;

// Random numbers that depend on the name of the tensor only.
Result<Tensor> RandomWeights(std::string_view source, int64_t, const TensorType& type) {
  std::mt19937_64 random(std::hash<std::string_view>{}(source));
  std::normal_distribution<double> normal(0, 0.7);
  Tensor tensor = reference::MakeZeros(type.dtype, reference::DimsAt(type, {}));
  for (double& value : tensor.f) value = static_cast<float>(normal(random));
  return tensor;
}

struct Step {
  std::vector<int32_t> tokens, pos, slot, past, rows;
};

// Three rows of slot 0 and one of slot 1, then more of both, past the capacity and the window.
std::vector<Step> Steps() {
  return {{{3, 7, 1, 30}, {0, 1, 2, 0}, {0, 0, 0, 1}, {0, 0}, {2, 3}},
          {{5, 9, 2, 4, 8}, {3, 1, 4, 2, 5}, {0, 1, 0, 1, 0}, {3, 1}, {4}},
          {{11}, {6}, {0}, {6, 3}, {0}}};
}

void BindStep(Interpreter& interpreter, const Step& step) {
  const auto bind = [&](std::string_view name, const std::vector<int32_t>& values) {
    const ValueId id = interpreter.graph().Find(name);
    if (id == kNoValue) return;
    const Status status =
        interpreter.Bind(name, Tensor::I32({static_cast<int64_t>(values.size())}, values));
    ASSERT_TRUE(status.has_value()) << status.error().ToString();
  };
  bind("tokens", step.tokens);
  bind("pos", step.pos);
  bind("slot", step.slot);
  bind("past", step.past);
  std::vector<int32_t> past_of_wanted = step.past;
  for (size_t i = 0; i < step.pos.size(); ++i) {
    past_of_wanted[static_cast<size_t>(step.slot[i])] = step.pos[i];
  }
  bind("past_of_wanted", past_of_wanted);
  bind("rows", step.rows);
  bind("seed", {123, 456});
}

void RunStep(Interpreter& interpreter, const Step& step) {
  BindStep(interpreter, step);
  const bool has_rows = interpreter.graph().max_r > 0;
  const Extents extents{static_cast<int64_t>(step.tokens.size()),
                        has_rows ? static_cast<int64_t>(step.rows.size()) : 0};
  const Status status = interpreter.Run(extents);
  ASSERT_TRUE(status.has_value()) << status.error().ToString();
}

void ExpectSame(double found, double expected, const std::string& what) {
  if (std::isnan(expected) || std::isinf(expected)) {
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(found) : found == expected)
        << what << ": " << found << " instead of " << expected;
    return;
  }
  EXPECT_NEAR(found, expected, kTolerance * std::max(1.0, std::abs(expected))) << what;
}

// Expects row `found_row` of one tensor to equal row `expected_row` of another.
void ExpectSameRow(const Tensor& found, int64_t found_row, const Tensor& expected,
                   int64_t expected_row, const std::string& what) {
  ASSERT_EQ(found.row_elements(), expected.row_elements()) << what;
  const int64_t n = found.row_elements();
  for (int64_t j = 0; j < n; ++j) {
    const auto at = static_cast<size_t>(found_row * n + j);
    const auto from = static_cast<size_t>(expected_row * n + j);
    if (reference::IsInteger(expected.dtype)) {
      EXPECT_EQ(found.i[at], expected.i[from]) << what;
    } else {
      ExpectSame(found.f[at], expected.f[from], what);
    }
  }
}

Interpreter NewInterpreter(const Graph& graph) {
  return Must(Interpreter::Create(graph, RandomWeights));
}

// Runs all steps on the model as built, at all rows, and on `graph`; compares outputs at the rows
// `graph` has, and the states.
void ExpectSameResults(const Graph& graph, DemandMode mode) {
  Interpreter expected =
      NewInterpreter(Must(ApplyRowDemand(MiniModel::Build(), DemandMode::kAllRows)));
  Interpreter found = NewInterpreter(graph);
  for (const Step& step : Steps()) {
    RunStep(expected, step);
    RunStep(found, step);
    for (const Output& output : graph.outputs) {
      const Tensor& ours = *found.GetOutput(output.name);
      const Tensor& theirs = *expected.GetOutput(output.name);
      const bool chosen = mode == DemandMode::kPerOutput;
      ASSERT_EQ(ours.rows(), static_cast<int64_t>(chosen ? step.rows.size() : step.tokens.size()));
      for (int64_t row = 0; row < ours.rows(); ++row) {
        ExpectSameRow(ours, row, theirs, chosen ? step.rows[static_cast<size_t>(row)] : row,
                      output.name);
      }
    }
    for (const char* name : {"blk.0.k_cache", "blk.1.v_cache", "history"}) {
      const Tensor ours = Must(found.ReadState(name));
      const Tensor theirs = Must(expected.ReadState(name));
      for (int64_t slot = 0; slot < ours.rows(); ++slot)
        ExpectSameRow(ours, slot, theirs, slot, name);
    }
  }
}

class Equivalence : public testing::TestWithParam<DemandMode> {};

TEST_P(Equivalence, RowDemand) {
  ExpectSameResults(Must(ApplyRowDemand(MiniModel::Build(), GetParam())), GetParam());
}

TEST_P(Equivalence, RowDemandOfTheCanonicalForm) {
  const Graph canonical = Must(Canonicalise(MiniModel::Build()));
  ExpectSameResults(Must(ApplyRowDemand(canonical, GetParam())), GetParam());
}

TEST_P(Equivalence, DecompositionOfEverything) {
  const Graph graph = Must(ApplyRowDemand(MiniModel::Build(), GetParam()));
  ExpectSameResults(Must(DecomposeAll(graph)), GetParam());
}

TEST_P(Equivalence, DecompositionBeforeRowDemand) {
  const Graph graph = Must(DecomposeAll(MiniModel::Build()));
  ExpectSameResults(Must(ApplyRowDemand(graph, GetParam())), GetParam());
}

TEST_P(Equivalence, WholePipelineOnOneDevice) {
  PipelineOptions options;
  options.bucket.demand = GetParam();
  options.bucket.max_t = 5;
  options.bucket.max_r = 2;
  options.arenas = {{.alignment = 64}};
  const SupportQuery composites_refused = [](int, const Graph& graph) {
    std::vector<std::string> reasons;
    for (const Op& op : graph.ops) reasons.emplace_back(HasDecomposition(op.kind) ? "no" : "");
    return Result<std::vector<std::string>>(std::move(reasons));
  };
  const Program program = Must(BuildProgram(MiniModel::Build(), composites_refused, options));
  ASSERT_EQ(program.segments.size(), 1U);
  ExpectSameResults(program.segments[0].graph, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Modes, Equivalence,
                         testing::Values(DemandMode::kPerOutput, DemandMode::kAllRows,
                                         DemandMode::kStateOnly));

// Running the segments in order, with values passed by name, gives the results of the whole graph.
TEST(EquivalenceOfSegments, OnTwoDevices) {
  PipelineOptions options;
  options.bucket.max_t = 5;
  options.bucket.max_r = 2;
  options.arenas = {{.alignment = 64}, {.alignment = 64}};
  options.policy.fallback = FallbackPolicy::kAllow;
  options.policy.host_device = 1;
  options.policy.host_weights = {"per_layer_token_embd", "down.weight"};
  const SupportQuery all = [](int, const Graph& graph) {
    return Result<std::vector<std::string>>(std::vector<std::string>(graph.ops.size()));
  };
  const Program program = Must(BuildProgram(MiniModel::Build(), all, options));
  ASSERT_GT(program.segments.size(), 5U) << "each layer's down projection runs on the host";

  Interpreter whole =
      NewInterpreter(Must(ApplyRowDemand(MiniModel::Build(), DemandMode::kPerOutput)));
  const Step step = Steps()[0];
  RunStep(whole, step);
  std::map<std::string, Tensor> crossing;
  for (const PlannedSegment& segment : program.segments) {
    Interpreter interpreter = NewInterpreter(segment.graph);
    for (const auto& [name, tensor] : crossing) {
      const ValueId id = segment.graph.Find(name);
      if (id == kNoValue || segment.graph.value(id).lifetime != Lifetime::kInput) continue;
      ASSERT_TRUE(interpreter.Bind(name, tensor).has_value());
    }
    RunStep(interpreter, step);
    for (const Output& output : segment.graph.outputs) {
      crossing[output.name] = *interpreter.GetOutput(output.name);
    }
  }
  for (const char* name : {"logits", "token"}) {
    const Tensor& expected = *whole.GetOutput(name);
    for (int64_t row = 0; row < expected.rows(); ++row) {
      ExpectSameRow(crossing.at(name), row, expected, row, name);
    }
  }
}

// The steps want the last rows of their slots, and the third one wraps the caches, whose readers on
// wanted rows have a window.
TEST(EquivalenceOfWantedRows, AfterTheCaches) {
  const Graph demanded = Must(ApplyRowDemand(MiniModel::Build(), DemandMode::kPerOutput));
  const Graph graph = Must(DecodeWantedRows(demanded));
  ASSERT_NE(graph.Find("past_of_wanted"), kNoValue);
  ExpectSameResults(graph, DemandMode::kPerOutput);
  ExpectSameResults(Must(Schedule(graph, true)), DemandMode::kPerOutput);
}

TEST(EquivalenceOfWantedRows, AsASegment) {
  const Graph demanded = Must(ApplyRowDemand(MiniModel::Build(), DemandMode::kPerOutput));
  Interpreter whole = NewInterpreter(demanded);
  const auto segments =
      Must(Partition(Must(Schedule(Must(DecodeWantedRows(demanded)), true)), true));
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_FALSE(segments[0].wanted_only);
  ASSERT_TRUE(segments[1].wanted_only);
  EXPECT_EQ(segments[1].graph.max_t, demanded.max_r);
  EXPECT_EQ(CountOps(segments[1].graph, OpKind::kAttention), 2U)
      << "of the last layer with a cache, whose other rows nothing reads, and of the last layer";
  EXPECT_EQ(CountOps(segments[1].graph, OpKind::kStateAppend), 0U);
  Interpreter first = NewInterpreter(segments[0].graph), last = NewInterpreter(segments[1].graph);
  for (const Step& step : Steps()) {
    RunStep(whole, step);
    RunStep(first, step);
    BindStep(last, step);
    for (const Output& output : segments[0].graph.outputs) {
      ASSERT_TRUE(last.Bind(output.name, *first.GetOutput(output.name)).has_value()) << output.name;
    }
    for (const Value& value : segments[1].graph.values) {
      if (value.lifetime != Lifetime::kState) continue;
      ASSERT_TRUE(last.WriteState(value.name, Must(first.ReadState(value.name))).has_value());
    }
    const auto wanted = static_cast<int64_t>(step.rows.size());
    ASSERT_TRUE(last.Run({wanted, wanted}).has_value());
    for (const char* name : {"logits", "token"}) {
      for (int64_t row = 0; row < wanted; ++row) {
        ExpectSameRow(*last.GetOutput(name), row, *whole.GetOutput(name), row, name);
      }
    }
  }
}

// ---- single composites at their edges -----------------------------------------------------------

using AddOp = ValueId (*)(GraphBuilder&, ValueId x);

void ExpectDecompositionAgrees(AddOp add, const std::vector<std::vector<double>>& rows) {
  const auto columns = static_cast<int64_t>(rows[0].size());
  GraphBuilder b("one");
  const ValueId x = b.Input("x", {DType::kF32, {Dim::T(), columns}});
  b.Output("y", add(b, x), RowDemand::kAll);
  Graph whole = Must(std::move(b).Finish());
  whole.max_t = static_cast<int64_t>(rows.size());
  std::vector<double> values;
  for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  std::vector<Tensor> results;
  for (const Graph& graph : {whole, Must(DecomposeAll(whole))}) {
    Interpreter interpreter = NewInterpreter(graph);
    ASSERT_TRUE(interpreter.Bind("x", Tensor::F32({whole.max_t, columns}, values)).has_value());
    const Status status = interpreter.Run({whole.max_t, 0});
    ASSERT_TRUE(status.has_value()) << status.error().ToString();
    results.push_back(*interpreter.GetOutput("y"));
  }
  for (int64_t row = 0; row < whole.max_t; ++row) {
    ExpectSameRow(results[1], row, results[0], row, "row " + std::to_string(row));
  }
}

const std::vector<std::vector<double>> kEdgeRows = {
    {3, 2, 1, 0.5},
    {0, 0, 0, 0},
    {-1, -1, -2, -40},
    {5, -kInfinity, -kInfinity, -kInfinity},
    {-kInfinity, -kInfinity, -kInfinity, -kInfinity},
    {1e30, 1e30, -1e30, 0},
    {-3e38, -3e38, -3e38, -3e38},
    {2, kNaN, 1, -kInfinity},
};

TEST(DecompositionEdges, Softmax) {
  ExpectDecompositionAgrees([](GraphBuilder& b, ValueId x) { return b.Add(ops::Softmax{x}, "y"); },
                            kEdgeRows);
  ExpectDecompositionAgrees([](GraphBuilder& b, ValueId x) { return b.Add(ops::Softmax{x}, "y"); },
                            {{kInfinity, 1, 2}, {1, kNaN, 2}});
}

TEST(DecompositionEdges, TopP) {
  ExpectDecompositionAgrees(
      [](GraphBuilder& b, ValueId x) { return b.Add(ops::TopPMask{.x = x, .p = 0.6F}, "y"); },
      kEdgeRows);
  ExpectDecompositionAgrees(
      [](GraphBuilder& b, ValueId x) { return b.Add(ops::TopPMask{.x = x, .p = 1.0F}, "y"); },
      kEdgeRows);
  ExpectDecompositionAgrees(
      [](GraphBuilder& b, ValueId x) { return b.Add(ops::TopPMask{.x = x, .p = 1e-9F}, "y"); },
      {{2}, {-kInfinity}});
}

TEST(DecompositionEdges, MinP) {
  ExpectDecompositionAgrees(
      [](GraphBuilder& b, ValueId x) { return b.Add(ops::MinPMask{.x = x, .p = 0.3F}, "y"); },
      kEdgeRows);
  ExpectDecompositionAgrees(
      [](GraphBuilder& b, ValueId x) { return b.Add(ops::MinPMask{.x = x, .p = 1.0F}, "y"); },
      kEdgeRows);
}

TEST(DecompositionEdges, RmsNormAndSoftcap) {
  const std::vector<std::vector<double>> rows = {{0, 0, 0}, {1, -2, 3}, {1e15, 1, -1e15}};
  ExpectDecompositionAgrees(
      [](GraphBuilder& b, ValueId x) { return b.Add(ops::RmsNorm{.x = x, .eps = 1e-6F}, "y"); },
      rows);
  ExpectDecompositionAgrees(
      [](GraphBuilder& b, ValueId x) { return b.Add(ops::Softcap{.x = x, .cap = 30}, "y"); }, rows);
}

}  // namespace
}  // namespace rullama

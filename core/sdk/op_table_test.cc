#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/op_table.h>

#include <string>
#include <vector>

namespace rullama::sdk {
namespace {

using ::testing::ElementsAre;

using Row = OpRow<std::string(const GraphView&, const rl_op&, const int& limit), int(int)>;

std::string RefuseAboveLimit(const GraphView& /*graph*/, const rl_op& op, const int& limit) {
  return op.result_count > static_cast<uint32_t>(limit) ? "too many results" : "";
}

int Double(int x) { return 2 * x; }
int Negate(int x) { return -x; }

constexpr Row kLimited = {RL_OP_topk, RefuseAboveLimit, Double};
constexpr Row kAlways = {RL_OP_copy, nullptr, Negate};
constexpr const Row* kRowsOfTwoOps[] = {&kLimited, &kAlways};
constexpr OpTable<Row> kTable(kRowsOfTwoOps);

// Ops of the given kinds with two results each.
class OpTableTest : public ::testing::Test {
 protected:
  GraphView GraphOf(const std::vector<uint32_t>& kinds) {
    ops_.assign(kinds.size(), rl_op{});
    for (size_t i = 0; i < kinds.size(); ++i) {
      ops_[i].kind = kinds[i];
      ops_[i].result_count = 2;
    }
    graph_.op_size = sizeof(rl_op);
    graph_.op_count = static_cast<uint32_t>(ops_.size());
    graph_.ops = ops_.data();
    return GraphView(graph_);
  }

  std::vector<rl_op> ops_;
  rl_graph graph_{};
};

TEST_F(OpTableTest, AsksTheRowOfEachOp) {
  std::vector<std::string> reasons;
  std::vector<bool> supported;
  for (const OpSupport& answer : kTable.Query(GraphOf({RL_OP_topk, RL_OP_copy, 4711}), 1)) {
    reasons.push_back(answer.reason);
    supported.push_back(answer.supported);
  }
  EXPECT_THAT(reasons, ElementsAre("too many results", "", "unknown to this backend"));
  EXPECT_THAT(supported, ElementsAre(false, true, false));
}

TEST_F(OpTableTest, VisitsOpsInOrder) {
  std::vector<int> built;
  kTable.ForEachOp(
      GraphOf({RL_OP_copy, RL_OP_topk}),
      [&](const Row& row, const rl_op& op, uint32_t index) {
        EXPECT_EQ(row.kind, op.kind);
        built.push_back(row.build(static_cast<int>(index) + 1));
      },
      2);
  EXPECT_THAT(built, ElementsAre(-1, 4));
}

// A host that compiles an op in spite of a refusal learns which op it was.
TEST_F(OpTableTest, ThrowsForARefusedOp) {
  int built = 0;
  const auto build = [&](const Row&, const rl_op&, uint32_t) { ++built; };
  for (const uint32_t kind : {uint32_t{RL_OP_topk}, uint32_t{4711}}) {
    internal::failed_op = RL_NO_OP;
    try {
      kTable.ForEachOp(GraphOf({RL_OP_copy, kind}), build, 1);
      ADD_FAILURE() << "compiled an op of kind " << kind;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), RL_UNSUPPORTED);
      EXPECT_EQ(internal::failed_op, 1U);
    }
  }
  EXPECT_EQ(built, 2);  // the copies
  internal::failed_op = RL_NO_OP;
}

// Weights must be constants of a type that the backend knows. The table of a matrix product is one.
TEST(RefuseWeightsTest, NamesTheTypeOrTheLifetime) {
  rl_value values[2] = {};
  values[operands::MatMul::x].dtype = RL_DTYPE_F32;
  rl_value& weight = values[operands::MatMul::weight];
  weight.dtype = RL_DTYPE_Q4_K;
  weight.lifetime = RL_LIFETIME_CONSTANT;
  const uint32_t inputs[] = {operands::MatMul::x, operands::MatMul::weight};
  rl_op op{};
  op.kind = RL_OP_matmul;
  op.inputs = inputs;
  op.input_count = 2;
  rl_graph graph{};
  graph.value_size = sizeof(rl_value);
  graph.value_count = 2;
  graph.values = values;
  graph.op_size = sizeof(rl_op);
  graph.op_count = 1;
  graph.ops = &op;
  const auto is_q4 = [](DType dtype) { return dtype == DType::kQ4_K; };
  EXPECT_EQ(RefuseWeights(GraphView(graph), op, is_q4), "");
  weight.lifetime = RL_LIFETIME_TRANSIENT;
  EXPECT_EQ(RefuseWeights(GraphView(graph), op, is_q4), "weight is not a constant");
  weight.dtype = RL_DTYPE_F16;
  EXPECT_EQ(RefuseWeights(GraphView(graph), op, is_q4), "weight type f16");
}

}  // namespace
}  // namespace rullama::sdk

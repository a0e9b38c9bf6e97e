// grouped_matmul and moe_ffn. With few rows each pair of row and expert is computed by itself; with
// many, pairs are sorted by expert so that the weights of each are read once for a tile of them.
#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kSortThreads = 256;
constexpr uint32_t kThreads = 256;

struct Sorted {
  Scratch table;
  int64_t tiles = 0;
};

Sorted Sort(PlanBuilder& plan, uint32_t experts, int64_t expert_count) {
  const rl_value& value = plan.graph().value(experts);
  const int64_t used = Last(value);
  const int64_t pairs = plan.MostRows(value) * used;
  Sorted sorted;
  // Each expert may leave one tile that is not full.
  sorted.tiles = pairs / kProductTile + std::min(expert_count, pairs);
  sorted.table = plan.NewScratch(
      static_cast<uint64_t>(2 + sorted.tiles + sorted.tiles * kProductTile) * sizeof(uint32_t));
  DispatchBuilder(plan, Shader::kMoeSort, {kSortThreads})
      .Read(experts)
      .Write(sorted.table)
      .Rows(value.dims[0])
      .U32(used)
      .U32(expert_count)
      .U32(sorted.tiles)
      .U32(plan.op_index() + 1)
      .Go(1);
  return sorted;
}

Product ExpertProduct(const sdk::GraphView& graph, ProductMode mode, uint32_t weight,
                      uint32_t experts) {
  const rl_value& w = graph.value(weight);
  const rl_value& e = graph.value(experts);
  Product product;
  product.mode = mode;
  product.weight = &PlanBuilder::WeightOf(w);
  product.gate = product.weight->address();
  product.rows = e.dims[0];
  product.n = w.dims[1].constant;
  product.used = Last(e);
  product.expert_count = w.dims[0].constant;
  product.expert_rows = w.dims[1].constant;
  return product;
}

bool HasFewRows(const PlanBuilder& plan, uint32_t experts) {
  return plan.MostRows(plan.graph().value(experts)) <= kFewProductRows;
}

void GroupedMatMul(PlanBuilder& plan) {
  const uint32_t experts = plan.InputIndex(2);
  const ProductMode mode = plan.Input(0).rank == 2 ? ProductMode::kShared : ProductMode::kPairs;
  const Product product = ExpertProduct(plan.graph(), mode, plan.InputIndex(1), experts);
  ProductOperands operands;
  operands.x.value = plan.InputIndex(0);
  operands.y.value = plan.ResultIndex();
  operands.experts = experts;
  if (HasFewRows(plan, experts)) {
    FewRows(plan, product, operands);
    return;
  }
  const Sorted sorted = Sort(plan, experts, product.expert_count);
  operands.extra.scratch = sorted.table;
  ManyRows(plan, product, operands, sorted.tiles);
}

enum MoeFfnInput : uint32_t { kX, kWeights, kExperts, kGate, kUp, kDown, kFactor };

// Of the experts: the gated one, and that of what it gives.
struct MoeFfnProducts {
  Product first, second;
};
MoeFfnProducts ProductsOf(const sdk::GraphView& graph, const rl_op& op) {
  const uint32_t experts = op.inputs[kExperts];
  Product first = ExpertProduct(graph, ProductMode::kShared, op.inputs[kGate], experts);
  if (op.inputs[kUp] == RL_NO_VALUE) {
    first.n /= 2;
    first.up = first.gate + static_cast<uint64_t>(first.n) * first.weight->shape().stride;
  } else {
    first.up = PlanBuilder::WeightOf(graph.value(op.inputs[kUp])).address();
  }
  return {first, ExpertProduct(graph, ProductMode::kPairs, op.inputs[kDown], experts)};
}

void MoeFfn(PlanBuilder& plan) {
  const uint32_t experts = plan.InputIndex(kExperts);
  auto [first, second] = ProductsOf(plan.graph(), plan.op());
  const int64_t pairs = plan.MostRows(plan.graph().value(experts)) * first.used;
  const auto floats = [pairs](int64_t n) {
    return static_cast<uint64_t>(pairs * n) * sizeof(float);
  };
  const Scratch hidden = plan.NewScratch(floats(first.n));
  ProductOperands up, down;
  up.x.value = plan.InputIndex(kX);
  up.experts = down.experts = experts;
  up.y.scratch = down.x.scratch = hidden;
  const Operand weights{.value = plan.InputIndex(kWeights)};
  const Operand factor{.value = plan.InputIndex(kFactor)};
  if (ExpertsGoByBytes(plan.tuning(), plan.graph(), plan.op())) {
    up.extra = weights;
    up.factor = factor;
    RowByBytes(plan, first, up, plan.prologue());
    second.mode = ProductMode::kSummed;
    down.y.value = plan.ResultIndex();
    RowByBytes(plan, second, down, nullptr);
    return;
  }
  if (HasFewRows(plan, experts)) {
    FewRows(plan, first, up);
    second.mode = ProductMode::kWeighted;
    down.extra = weights;
    down.factor = factor;
    down.y.value = plan.ResultIndex();
    FewRows(plan, second, down);
    return;
  }
  const Sorted sorted = Sort(plan, experts, first.expert_count);
  const Scratch terms = plan.NewScratch(floats(second.n));
  up.extra.scratch = down.extra.scratch = sorted.table;
  down.y.scratch = terms;
  ManyRows(plan, first, up, sorted.tiles);
  ManyRows(plan, second, down, sorted.tiles);
  const rl_value& y = plan.Result();
  DispatchBuilder(plan, Shader::kMoeCombine, {kThreads})
      .Read(terms)
      .Read(weights.value)
      .Read(experts)
      .Read(factor.value)
      .Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .U32(first.used)
      .U32(second.n)
      .U32(second.expert_count)
      .Go((static_cast<uint64_t>(plan.MostRows(y) * second.n) + kThreads - 1) / kThreads);
}

}  // namespace

bool ExpertsGoByBytes(const Tuning& tuning, const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& experts = graph.value(op.inputs[kExperts]);
  const WeightShape first = ShapeOfConstant(graph.value(op.inputs[kGate]));
  const WeightShape second = ShapeOfConstant(graph.value(op.inputs[kDown]));
  const int64_t rows = MaxRows(graph, experts);
  return GoesByBytes(tuning, {ProductMode::kShared, first, Last(experts)}, rows) &&
         GoesByBytes(tuning, {ProductMode::kSummed, second, Last(experts)}, rows);
}

bool CompileMoe(PlanBuilder& plan) {
  switch (plan.op().kind) {
    case RL_OP_grouped_matmul:
      GroupedMatMul(plan);
      return true;
    case RL_OP_moe_ffn:
      MoeFfn(plan);
      return true;
    default:
      return false;
  }
}

}  // namespace rullama::gpu

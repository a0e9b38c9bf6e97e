// grouped_matmul and moe_ffn. With few rows, or more experts than rows can share,
// each pair of row and expert is computed by itself; else pairs are sorted by expert so that the
// weights of each are read once for a tile of them.
#include <rullama/sdk/operands.h>
#include <rullama/sdk/slots.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kMoeThreads = 256;
constexpr uint32_t kMaxCounters = kernels::MoeSort::kMaxCounters;

// Sorts the pairs of row and expert into tiles of `rows` rows.
ExpertTiles Sort(PlanBuilder& plan, uint32_t experts, int64_t expert_count, uint32_t rows) {
  const rl_value& value = plan.graph().value(experts);
  const int64_t used = Last(value);
  const int64_t pairs = plan.MaxRows(value) * used;
  // Each expert may leave one tile that is not full.
  const int64_t count = pairs / rows + std::min(expert_count, pairs);
  ExpertTiles tiles{.tiling = {.rows = rows, .count = static_cast<uint64_t>(count)}};
  tiles.table =
      plan.scratch().New(static_cast<uint64_t>(2 + count + count * rows) * sizeof(uint32_t));
  const uint32_t threads = std::min(plan.target().prefers.wide, kMaxCounters);
  DispatchBuilder(plan, kernels::MoeSort{.threads = threads, .tile = rows},
                  {.experts = experts,
                   .table = tiles.table,
                   .rows = value.dims[0],
                   .used = used,
                   .count = expert_count,
                   .tiles = count,
                   .op = plan.op_index() + 1})
      .Emit(1);
  return tiles;
}

// Sorts for products that follow one another and read the same table. If they all run without
// matrix units, tiles hold twice the rows of an average expert, at most 64; if only some do, all of
// them take the rows of kSmallCoopTile.
ExpertTiles SortFor(PlanBuilder& plan, uint32_t experts,
                    std::initializer_list<const Product*> products) {
  const int64_t count = (*products.begin())->expert_count;
  const rl_value& value = plan.graph().value(experts);
  const auto pairs = static_cast<uint64_t>(plan.DecisiveRows(value) * Last(value));
  const auto on_matrix_units = [&](const Product* product) {
    return RunsOnMatrixUnits(plan.target(), product->weight->shape());
  };
  if (std::ranges::none_of(products, on_matrix_units)) {
    return Sort(plan, experts, count, F32TileRows(2 * pairs / static_cast<uint64_t>(count)));
  }
  const CoopTile tile = std::ranges::all_of(products, on_matrix_units)
                            ? ExpertTileOf(pairs, static_cast<uint64_t>(count))
                            : kSmallCoopTile;
  ExpertTiles tiles = Sort(plan, experts, count, tile.rows);
  tiles.tiling.tile = tile;
  return tiles;
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

// Pairs are sorted however few they are: a tile reads the weights of an expert once.
void GroupedAsStored(PlanBuilder& plan, Product product, const ProductOperands& operands) {
  product.n = Last(plan.Result());
  EmitStoredExperts(plan, product, operands,
                    Sort(plan, operands.experts, product.expert_count, kStoredTileRows));
}

bool HasFewRows(const PlanBuilder& plan, uint32_t experts) {
  return plan.DecisiveRows(plan.graph().value(experts)) <= sdk::kFewRows;
}

// Whether there are more experts than a workgroup can sort pairs by: clusters of a drafter's head.
bool HasManyExperts(int64_t count) { return count > kMaxCounters; }

void GroupedMatMul(PlanBuilder& plan) {
  using operands::GroupedMatMul;
  const uint32_t experts = plan.InputIndex(GroupedMatMul::experts);
  const ProductMode mode =
      plan.Input(GroupedMatMul::x).rank == 2 ? ProductMode::kShared : ProductMode::kPairs;
  const Product product =
      ExpertProduct(plan.graph(), mode, plan.InputIndex(GroupedMatMul::weight), experts);
  ProductOperands values;
  values.x.value = plan.InputIndex(GroupedMatMul::x);
  values.y.value = plan.ResultIndex();
  values.experts = experts;
  if (plan.attrs<rl_grouped_matmul_attrs>().as_stored != 0) {
    GroupedAsStored(plan, product, values);
    return;
  }
  if (HasFewRows(plan, experts) || HasManyExperts(product.expert_count)) {
    EmitChosen(plan, product, values);
    return;
  }
  EmitChosen(plan, product, values, {.tiles = SortFor(plan, experts, {&product})});
}

// The products of the experts: the gated one, and the one that reads its result.
struct MoeFfnProducts {
  Product first, second;
};
MoeFfnProducts ProductsOf(const sdk::GraphView& graph, const rl_op& op) {
  const uint32_t experts = op.inputs[operands::MoeFfn::experts];
  Product first =
      ExpertProduct(graph, ProductMode::kShared, op.inputs[operands::MoeFfn::gate_weight], experts);
  const uint32_t up = OperandIndex(op, operands::MoeFfn::up_weight);
  if (up == RL_NO_VALUE) {
    first.n /= 2;
    first.up = first.gate + static_cast<uint64_t>(first.n) * first.weight->shape().stride;
  } else {
    first.up = PlanBuilder::WeightOf(graph.value(up)).address();
  }
  const uint32_t down = op.inputs[operands::MoeFfn::down_weight];
  return {first, ExpertProduct(graph, ProductMode::kPairs, down, experts)};
}

void MoeFfn(PlanBuilder& plan) {
  using operands::MoeFfn;
  const uint32_t experts = plan.InputIndex(MoeFfn::experts);
  auto [first, second] = ProductsOf(plan.graph(), plan.op());
  const int64_t pairs = plan.MaxRows(plan.graph().value(experts)) * first.used;
  const auto floats = [pairs](int64_t n) {
    return static_cast<uint64_t>(pairs * n) * sizeof(float);
  };
  const Scratch hidden = plan.scratch().Take(floats(first.n));
  ProductOperands up, down;
  up.x.value = plan.InputIndex(MoeFfn::x);
  up.experts = down.experts = experts;
  up.y.scratch = down.x.scratch = hidden;
  const Operand weights{.value = plan.InputIndex(MoeFfn::weights)};
  const Operand factor{.value = plan.InputIndex(MoeFfn::expert_scale)};
  if (ExpertsFitByteGemv(plan.target(), plan.graph(), plan.op())) {
    up.extra = weights;
    up.factor = factor;
    EmitChosen(plan, first, up, {.may_take_bytes = true});
    second.mode = ProductMode::kSummed;
    down.y.value = plan.ResultIndex();
    EmitChosen(plan, second, down, {.may_take_bytes = true});
    plan.scratch().GiveBack(hidden);
    return;
  }
  if (HasFewRows(plan, experts)) {
    EmitChosen(plan, first, up);
    second.mode = ProductMode::kWeighted;
    down.extra = weights;
    down.factor = factor;
    down.y.value = plan.ResultIndex();
    EmitChosen(plan, second, down);
    plan.scratch().GiveBack(hidden);
    return;
  }
  const ExpertTiles tiles = SortFor(plan, experts, {&first, &second});
  const Scratch terms = plan.scratch().Take(floats(second.n));
  down.y.scratch = terms;
  EmitChosen(plan, first, up, {.tiles = tiles});
  EmitChosen(plan, second, down, {.tiles = tiles});
  plan.scratch().GiveBack(hidden);
  const rl_value& y = plan.Result();
  DispatchBuilder(plan, kernels::MoeCombine{.threads = kMoeThreads},
                  {.x = terms,
                   .weights = weights,
                   .experts = experts,
                   .factor = factor,
                   .y = plan.ResultIndex(),
                   .rows = y.dims[0],
                   .used = first.used,
                   .n = second.n,
                   .count = second.expert_count})
      .Emit((static_cast<uint64_t>(plan.MaxRows(y) * second.n) + kMoeThreads - 1) / kMoeThreads);
  plan.scratch().GiveBack(terms);
}

// Refuses products that sort the pairs of more experts than a workgroup can count.
std::string RefuseSorted(const sdk::GraphView& graph, const rl_op& op, uint32_t weight,
                         const DeviceLimits& limits) {
  if (HasManyExperts(graph.input(op, weight)->dims[0].constant)) {
    return "more than " + std::to_string(kMaxCounters) + " experts";
  }
  return RefuseWeights(graph, op, limits);
}

std::string RefuseGroupedMatMul(const sdk::GraphView& graph, const rl_op& op,
                                const DeviceLimits& limits) {
  const bool sorts = sdk::GraphView::attrs<rl_grouped_matmul_attrs>(op).as_stored != 0;
  return sorts ? RefuseSorted(graph, op, operands::GroupedMatMul::weight, limits)
               : RefuseWeights(graph, op, limits);
}

std::string RefuseMoeFfn(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits) {
  using operands::MoeFfn;
  std::string reason = RefuseGated(graph, op, MoeFfn::gate_weight, MoeFfn::up_weight);
  return reason.empty() ? RefuseSorted(graph, op, MoeFfn::gate_weight, limits) : reason;
}

}  // namespace

bool ExpertsFitByteGemv(const Target& target, const sdk::GraphView& graph, const rl_op& op) {
  const rl_value& experts = graph.value(op.inputs[operands::MoeFfn::experts]);
  const WeightShape first = ShapeOfConstant(graph.value(op.inputs[operands::MoeFfn::gate_weight]));
  const WeightShape second = ShapeOfConstant(graph.value(op.inputs[operands::MoeFfn::down_weight]));
  const int64_t rows = StepsOf(graph, target).DecisiveRows(experts);
  const auto fits = [&](ProductMode mode, const WeightShape& weight) {
    return FitsByteGemv(target, {.mode = mode, .weight = weight, .used = Last(experts)}, rows);
  };
  return fits(ProductMode::kShared, first) && fits(ProductMode::kSummed, second);
}

const OpRow rows::kGroupedMatMul = {RL_OP_grouped_matmul, RefuseGroupedMatMul, GroupedMatMul};
const OpRow rows::kMoeFfn = {RL_OP_moe_ffn, RefuseMoeFfn, MoeFfn};

}  // namespace rullama::gpu

// Products of one row, or of several side by side, by dot products of bytes, and what any product
// of one row does first.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

// Chunks of weights of a lane that are under way at a time.
constexpr uint32_t kDotChunksUnderWay = 2;

// The number of lanes that share a row of weights, a power of two, if a workgroup has `share` rows.
// Cost: the chunks of a lane, including idle ones, plus one for the reduction at the end of each
// row.
uint64_t LanesFor(const Target& target, uint64_t share, uint64_t columns, uint64_t threads) {
  constexpr uint64_t kMinLanes = 8;  // that read a block of 256 together
  const uint64_t chunks = columns / kProductChunk;
  const uint64_t max_lanes =
      std::min<uint64_t>(target.can.subgroups ? target.can.subgroup_size : 32, 32);
  const uint64_t least =
      std::bit_floor(std::clamp<uint64_t>(chunks / kDotChunksUnderWay, 1, kMinLanes));
  uint64_t best = 1, min_cost = 0;
  for (uint64_t lanes = std::min(least, max_lanes); lanes <= max_lanes; lanes *= 2) {
    const uint64_t turns = CeilDiv(share, threads / lanes);
    const uint64_t cost =
        turns * (CeilDiv(chunks, lanes * kDotChunksUnderWay) * kDotChunksUnderWay + 1);
    if (min_cost != 0 && cost >= min_cost) continue;
    min_cost = cost;
    best = lanes;
  }
  return best;
}

// The fields of MatVecDotArgs that say how its rows are split.
struct Division {
  uint32_t lanes, share, remainder;
};
static_assert(offsetof(kernels::MatVecDotLayout, share) ==
                  offsetof(kernels::MatVecDotLayout, lanes) + offsetof(Division, share) &&
              offsetof(kernels::MatVecDotLayout, remainder) ==
                  offsetof(kernels::MatVecDotLayout, lanes) + offsetof(Division, remainder));
Division DivisionOf(const Target& target, const Dispatch::Shares& shares, uint64_t groups,
                    uint64_t threads) {
  const uint64_t lanes = LanesFor(target, CeilDiv(shares.rows, groups), shares.columns, threads);
  return {static_cast<uint32_t>(lanes), static_cast<uint32_t>(shares.rows / groups),
          static_cast<uint32_t>(shares.rows % groups)};
}

ExpertLayout ExpertsOf(ProductMode mode) {
  if (mode == ProductMode::kDense) return ExpertLayout::kNoExperts;
  return mode == ProductMode::kShared ? ExpertLayout::kStacked : ExpertLayout::kSideBySide;
}

// The adapter of a product: how its workgroups divide the rows of A, of both halves of a gated
// product.
struct AdapterPlan {
  uint32_t rank = 0;
  uint32_t rows = 0;      // of A, of a workgroup
  uint32_t groups = 0;    // workgroups
  uint64_t b_stride = 0;  // bytes of a row of B
  Operand b{}, sums{};    // MatVecDotArgs::experts and factor
};

AdapterPlan AdapterPlanOf(PlanBuilder& plan, const Product& product) {
  if (product.adapter == nullptr) return {};
  // A of a workgroup: a few microseconds' work, which ends before the others need it. Of the
  // longest rows one has two: each of these workgroups is one less for W.
  constexpr uint64_t kBytes = 131072, kMost = kernels::MatVecDot::kMostRowsOfA;
  const Epilogue& adapter = *product.adapter;
  const auto shape_of = [&](uint32_t value) {
    return PlanBuilder::WeightOf(plan.graph().value(value)).shape();
  };
  const auto address_of = [&](uint32_t value) { return plan.addresses().AddressOf(value); };
  const WeightShape a = shape_of(adapter.adapter.a);
  const uint64_t all = a.rows * (product.up != 0 ? 2 : 1);
  const uint64_t groups = CeilDiv(all, std::clamp<uint64_t>(kBytes / a.stride, 1, kMost));
  Operand b{.value = adapter.adapter.b};
  if (product.up != 0) {
    const kernels::GatedAdapterLayout record{.b = address_of(adapter.adapter.b),
                                             .a2 = address_of(adapter.up_adapter.a),
                                             .b2 = address_of(adapter.up_adapter.b)};
    const auto bytes = std::as_bytes(std::span(&record, 1));
    b = {.scratch = {plan.scratch().Constant(bytes), bytes.size()}};
  }
  const uint64_t sums = static_cast<uint64_t>(plan.Max(product.rows)) * all;
  return {.rank = static_cast<uint32_t>(a.rows),
          .rows = static_cast<uint32_t>(CeilDiv(all, groups)),
          .groups = static_cast<uint32_t>(groups),
          .b_stride = shape_of(adapter.adapter.b).stride,
          .b = b,
          .sums = {.scratch = plan.TakeAwaited(sums)}};
}

}  // namespace

std::optional<kernels::Prologue> PrologueRecord(const Prologue* prologue) {
  constexpr float kNoNorm = -1;
  if (prologue == nullptr) return std::nullopt;
  const Prologue& p = *prologue;
  return kernels::Prologue{.x = p.x,
                           .residual = p.residual,
                           .weight = p.weight,
                           .scale = p.scale,
                           .sum = p.sum,
                           .norm_weight = p.norm_weight,
                           .eps = p.eps,
                           .norm_eps = p.norm ? p.norm_eps : kNoNorm};
}

Dispatch::Shares SharesOf(const Product& product) {
  const ProductShape shape = ShapeOf(product);
  return {.rows = shape.weight_rows(),
          .bytes = shape.weight.stride * shape.side_by_side() * (shape.gated ? 2 : 1),
          .columns = shape.staged_columns()};
}

void Divide(Dispatch& dispatch, const Target& target, uint64_t groups) {
  dispatch.groups[0] = dispatch.shares.first_groups + static_cast<uint32_t>(groups);
  if (dispatch.shares.offset == 0) return;
  const Division division =
      DivisionOf(target, dispatch.shares, groups, dispatch.pipeline.constants.front());
  std::memcpy(dispatch.push.data() + dispatch.shares.offset, &division, sizeof(division));
}

void EmitByteGemv(PlanBuilder& plan, const Product& product, const ProductOperands& operands,
                  const ByteGemv& how, const Prologue* prologue) {
  const WeightShape& shape = product.weight->shape();
  const Target& target = plan.target();
  const bool is_stacked = product.mode == ProductMode::kShared;
  Dispatch::Shares shares = SharesOf(product);
  shares.offset = offsetof(kernels::MatVecDotLayout, lanes);
  const AdapterPlan adapter = AdapterPlanOf(plan, product);
  const bool adapted = product.adapter != nullptr;
  shares.first_groups = adapter.groups;
  const Division division = DivisionOf(target, shares, how.grid.x, how.threads);
  DispatchBuilder(plan,
                  kernels::MatVecDot{.threads = how.threads,
                                     .type = shape.dtype,
                                     .halves = product.up != 0 ? 2 : 1,
                                     .unroll = kDotChunksUnderWay,
                                     .turns = how.turns,
                                     .together = how.together,
                                     .experts = ExpertsOf(product.mode),
                                     .own_rows = how.own_rows,
                                     .one_row = plan.steps().HaveOneRow(),
                                     .adapted = adapted,
                                     .max_columns = shares.columns},
                  {.x = operands.x,
                   .weight = product.gate,
                   .weight2 = product.up,
                   .extra = adapted ? product.adapter->adapter.a : BufferArgument(operands.extra),
                   .y = operands.y,
                   .experts = adapted ? BufferArgument(adapter.b) : operands.experts,
                   .factor = adapted ? adapter.sums : operands.factor,
                   .rows = product.rows,
                   .n = shares.rows,
                   .k = shares.columns,
                   .stride = shape.stride,
                   .lanes = division.lanes,
                   .share = division.share,
                   .remainder = division.remainder,
                   .used = adapted ? int64_t{adapter.groups} : product.used,
                   .count = adapted ? int64_t{adapter.rank} : product.expert_count,
                   .expert_rows = adapted ? int64_t{adapter.rows} : product.expert_rows,
                   .span = adapted      ? adapter.b_stride
                           : is_stacked ? static_cast<uint64_t>(product.n)
                                        : shape.columns / kProductChunk,
                   .op = plan.op_index() + 1,
                   .prologue = PrologueRecord(prologue)})
      .Share(shares)
      .Emit(adapter.groups + how.grid.x, how.grid.y);
}

}  // namespace rullama::gpu

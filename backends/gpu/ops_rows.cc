// Ops along the last dimension: reduce, softmax, entropy, norms, argmax, min_p_mask, and rope.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "backends/gpu/attention.h"
#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

using enum RowsOp;

// Invocations for rows of this length, a power of two: with fewer than eight elements each, waiting
// for one another costs more than the work.
uint32_t ThreadsFor(const PlanBuilder& plan, int64_t columns) {
  const auto wanted = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(columns / 8, 1)));
  return static_cast<uint32_t>(
      std::min<uint64_t>(std::max<uint64_t>(wanted, 64), plan.target().prefers.wide));
}

struct RowOperands {
  uint32_t x = 0;
  uint32_t weight = RL_NO_VALUE;
  uint32_t residual = RL_NO_VALUE;
  uint32_t scale = RL_NO_VALUE;
  float eps = 0;
  uint32_t weight2 = RL_NO_VALUE;
  uint32_t y2 = RL_NO_VALUE;
  float eps2 = 0;
};

bool CastsToHalf(const PlanBuilder& plan) {
  return plan.node().epilogue.kind == EpilogueKind::kCastF16;
}

// Workgroups among which a row is divided: a long one keeps a single workgroup waiting for memory.
int64_t PartsOf(int64_t columns) {
  constexpr int64_t kMinColumns = 2048, kMaxParts = 128;
  int64_t parts = 1;
  while (parts < kMaxParts && columns % (parts * 2) == 0 && columns / (parts * 2) >= kMinColumns) {
    parts *= 2;
  }
  return parts;
}

// `times` rows of `columns` for each of dimension 0 of `shape`.
void DispatchRow(PlanBuilder& plan, RowsOp kind, const RowOperands& o, const Operand& x,
                 const Operand& y, const rl_value& shape, int64_t times, int64_t columns) {
  const DimArgument rows(shape.dims[0], times);
  const RowSplit split = SplitRows(plan, rows.dim(), columns, ThreadsFor(plan, columns));
  DispatchBuilder(
      plan,
      kernels::Rows{
          .threads = split.threads, .op = kind, .half = CastsToHalf(plan), .narrow = split.narrow},
      {.x = x,
       .weight = o.weight,
       .residual = o.residual,
       .scale = o.scale,
       .y = y,
       .weight2 = o.weight2,
       .y2 = o.y2,
       .rows = rows,
       .columns = columns,
       .eps = o.eps,
       .eps2 = o.eps2})
      .Emit(split.groups);
}

void Emit(PlanBuilder& plan, RowsOp kind, const RowOperands& o) {
  const rl_value& x = plan.graph().value(o.x);
  DispatchRow(plan, kind, o, {.value = o.x}, {.value = plan.StoredIndex()}, x, MiddleElements(x),
              Last(x));
}

// Reduces equal parts of long rows first, then their results. The mean of the means of equal parts
// is the mean.
void Reduce(PlanBuilder& plan) {
  const auto kind = static_cast<RowsOp>(plan.attrs<rl_reduce_attrs>().fn);
  const uint32_t input = plan.InputIndex(operands::Reduce::x);
  const rl_value& x = plan.graph().value(input);
  const int64_t middle = MiddleElements(x), parts = PartsOf(Last(x));
  if (parts == 1) {
    Emit(plan, kind, {.x = input});
    return;
  }
  const auto items = static_cast<uint64_t>(plan.MaxRows(x) * middle * parts);
  const Operand partial{.scratch = plan.scratch().New(items * sizeof(float))};
  DispatchRow(plan, kind, {}, {.value = input}, partial, x, middle * parts, Last(x) / parts);
  DispatchRow(plan, kind, {}, partial, {.value = plan.ResultIndex()}, x, middle, parts);
}

void ArgMax(PlanBuilder& plan) {
  const uint32_t input = plan.InputIndex(operands::ArgMax::x);
  const rl_value& x = plan.graph().value(input);
  const int64_t parts = PartsOf(Last(x));
  const auto rows = static_cast<uint64_t>(plan.MaxRows(x));
  const auto dispatch = [&](const Operand& among, const Operand& y, int64_t of, int64_t span) {
    DispatchBuilder(plan, kernels::ArgMax{.threads = ThreadsFor(plan, span)},
                    {.x = input,
                     .among = among,
                     .y = y,
                     .rows = x.dims[0],
                     .columns = Last(x),
                     .parts = of,
                     .span = span})
        .Emit(rows * static_cast<uint64_t>(of));
  };
  const Operand result{.value = plan.ResultIndex()};
  if (parts == 1) {
    dispatch({}, result, 1, Last(x));
    return;
  }
  const Operand best{
      .scratch = plan.scratch().New(rows * static_cast<uint64_t>(parts) * sizeof(uint32_t))};
  dispatch({}, best, parts, Last(x) / parts);
  dispatch(best, result, 1, parts);
}

void Rope(PlanBuilder& plan) {
  const rl_value& y = plan.Result();
  const Prologue* norm = plan.prologue();
  const int64_t heads = y.dims[1].constant;
  const uint32_t threads = ThreadsFor(plan, Last(y));
  const auto rows = static_cast<uint64_t>(plan.MaxRows(y) * heads);
  const uint64_t pairs = rows * static_cast<uint64_t>(Last(y)) / 2;
  DispatchBuilder(
      plan, kernels::Rope{.threads = threads, .norm = norm != nullptr, .half = CastsToHalf(plan)},
      {.x = norm != nullptr ? norm->x : plan.InputIndex(operands::Rope::x),
       .pos = plan.InputIndex(operands::Rope::pos),
       .rates = RopeRates(plan, plan.op()),
       .weight = norm != nullptr ? norm->norm_weight : RL_NO_VALUE,
       .y = plan.StoredIndex(),
       .rows = y.dims[0],
       .heads = heads,
       .dim = Last(y),
       .first = plan.attrs<rl_rope_attrs>().first,
       .half_rot = RotatedPairs(plan.op()),
       .eps = norm != nullptr ? norm->norm_eps : 0})
      .Emit(norm != nullptr ? rows : std::min(rows, CeilDiv(pairs, threads)));
}

void RmsNorm(PlanBuilder& plan) {
  const RowOperands o{.x = plan.InputIndex(operands::RmsNorm::x),
                      .weight = plan.InputIndex(operands::RmsNorm::weight),
                      .eps = plan.attrs<rl_rms_norm_attrs>().eps};
  if (plan.node().StoresHalfRows()) {
    const Prologue norms{.x = o.x, .norm = true, .norm_weight = o.weight, .norm_eps = o.eps};
    EmitHalfRows(plan, {.x = o.x, .norms = &norms});
    return;
  }
  Emit(plan, kRmsNorm, o);
}

void ResidualNorm(PlanBuilder& plan) {
  RowOperands o{.x = plan.InputIndex(operands::ResidualNorm::x),
                .weight = plan.InputIndex(operands::ResidualNorm::weight),
                .residual = plan.InputIndex(operands::ResidualNorm::residual),
                .scale = plan.InputIndex(operands::ResidualNorm::scale),
                .eps = plan.attrs<rl_residual_norm_attrs>().eps};
  const Epilogue& epilogue = plan.node().epilogue;
  const bool two = epilogue.kind == EpilogueKind::kNorm;
  if (two) {
    o.weight2 = epilogue.norm_weight;
    o.y2 = epilogue.result;
    o.eps2 = epilogue.norm_eps;
  }
  if (plan.node().StoresHalfRows()) {
    const Prologue norms{.x = o.x,
                         .residual = o.residual,
                         .weight = o.weight,
                         .scale = o.scale,
                         .sum = plan.ResultIndex(),
                         .eps = o.eps,
                         .norm = two,
                         .norm_weight = o.weight2,
                         .norm_eps = o.eps2};
    EmitHalfRows(plan, {.x = o.x, .norms = &norms});
    return;
  }
  Emit(plan, two ? kTwoNorms : kResidualNorm, o);
}

void Softmax(PlanBuilder& plan) {
  Emit(plan, kSoftmax, {.x = plan.InputIndex(operands::Softmax::x)});
}

void Entropy(PlanBuilder& plan) {
  Emit(plan, kEntropy, {.x = plan.InputIndex(operands::Entropy::x)});
}

void MinPMask(PlanBuilder& plan) {
  Emit(plan, kMinP,
       {.x = plan.InputIndex(operands::MinPMask::x),
        .eps = std::log(plan.attrs<rl_min_p_mask_attrs>().p)});
}

std::string RefuseRope(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits) {
  const rl_value* factors = graph.input(op, operands::Rope::freq_factors);
  if (factors != nullptr && factors->lifetime != RL_LIFETIME_CONSTANT) {
    return "frequency factors are not a constant";
  }
  return RefusePlain(graph, op, limits);
}

void Rotate(PlanBuilder& plan) {
  const rl_value& y = plan.Result();
  const int64_t columns = Last(y), rows_of_row = RowElements(y) / columns;
  DispatchBuilder(plan,
                  kernels::Rotate{.threads = plan.target().Threads(static_cast<uint32_t>(
                                      std::clamp<int64_t>(columns / 2, 32, 256)))},
                  {.x = plan.InputIndex(operands::Rotate::x),
                   .y = plan.ResultIndex(),
                   .rows = {y.dims[0], rows_of_row},
                   .columns = columns,
                   .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(columns)))})
      .Emit(static_cast<uint64_t>(plan.MaxRows(y) * rows_of_row));
}

}  // namespace

// A workgroup for each of many short rows, such as heads, would mostly wait to start.
RowSplit SplitRows(const PlanBuilder& plan, const rl_dim& rows, int64_t columns, uint32_t threads) {
  constexpr int64_t kShortRow = 256;
  constexpr uint32_t kThreads = 256;
  const Target& target = plan.target();
  const auto all = static_cast<uint64_t>(plan.Max(rows));
  const bool narrow = target.can.subgroups && !target.can.is_cpu && columns <= kShortRow &&
                      plan.Decisive(rows) > int64_t{target.prefers.few_groups};
  if (!narrow) return {.threads = threads, .groups = all, .narrow = false};
  return {.threads = kThreads,
          .groups = CeilDiv(all, kThreads / target.can.subgroup_size),
          .narrow = true};
}

DeviceAddress RopeRates(PlanBuilder& plan, const rl_op& rope) {
  const auto& a = sdk::GraphView::attrs<rl_rope_attrs>(rope);
  constexpr double kTwoPi = 6.283185307179586476925;
  constexpr double kTwo32 = 4294967296.0;
  std::vector<uint32_t> rates;
  const rl_value* factors = plan.graph().input(rope, operands::Rope::freq_factors);
  for (int32_t i = 0; i < a.n_rot / 2; ++i) {
    float factor = 1;
    if (factors != nullptr) {
      const std::span<const std::byte> numbers = PlanBuilder::WeightOf(*factors).numbers();
      std::memcpy(&factor, numbers.subspan(static_cast<size_t>(i) * sizeof(float)).data(),
                  sizeof(float));
    }
    const double exponent = -2.0 * i / a.n_rot;
    const double turn =
        std::pow(static_cast<double>(a.theta), exponent) / static_cast<double>(factor) / kTwoPi;
    const double rate = a.inverse != 0 ? -turn : turn;  // modulo a whole turn
    const double scaled = (rate - std::floor(rate)) * kTwo32;
    rates.push_back(static_cast<uint32_t>(scaled));
    rates.push_back(static_cast<uint32_t>((scaled - std::floor(scaled)) * kTwo32));
  }
  return plan.scratch().Constant(std::as_bytes(std::span(rates)));
}

const OpRow rows::kReduce = {RL_OP_reduce, RefusePlain, Reduce};
const OpRow rows::kSoftmax = {RL_OP_softmax, RefusePlain, Softmax};
const OpRow rows::kEntropy = {RL_OP_entropy, RefusePlain, Entropy};
const OpRow rows::kMinPMask = {RL_OP_min_p_mask, RefusePlain, MinPMask};
const OpRow rows::kRmsNorm = {RL_OP_rms_norm, RefusePlain, RmsNorm};
const OpRow rows::kResidualNorm = {RL_OP_residual_norm, RefusePlain, ResidualNorm};
const OpRow rows::kArgMax = {RL_OP_argmax, RefusePlain, ArgMax};
const OpRow rows::kRotate = {RL_OP_rotate, RefusePlain, Rotate};
const OpRow rows::kRope = {RL_OP_rope, RefuseRope, Rope};

}  // namespace rullama::gpu

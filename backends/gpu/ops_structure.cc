// reshape, fold_rows, slice, concat, pad, cast, copy, gather_rows, gather_last, where,
// state_append.
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/operands.h>

#include "backends/gpu/graph_facts.h"
#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

using enum CopyOp;

constexpr uint32_t kCopyThreads = 256;
constexpr uint32_t kRowThreads = 128;

uint32_t BytesOf(const rl_value& value) { return InfoOf(TypeOf(value)).block_bytes; }

struct Stretch {
  int64_t inner, x_stride, x_offset, y_stride, y_offset;
};

struct CopyOperands {
  Operand x;
  uint32_t b = RL_NO_VALUE;
  uint32_t condition = RL_NO_VALUE;
};

// The constants `from` and `to` of strided_copy.
struct ElementTypes {
  uint32_t from, to = 0;
};

// Writes the result; `outer` runs per row.
void Run(PlanBuilder& plan, CopyOp op, const ElementTypes& types, const CopyOperands& o,
         int64_t outer, const Stretch& s) {
  const rl_dim& rows = plan.Result().dims[0];
  DispatchBuilder(
      plan,
      kernels::StridedCopy{.threads = kCopyThreads, .op = op, .from = types.from, .to = types.to},
      {.x = o.x,
       .b = o.b,
       .condition = o.condition,
       .y = plan.ResultIndex(),
       .rows = {rows, outer},
       .inner = s.inner,
       .x_stride = s.x_stride,
       .x_offset = s.x_offset,
       .y_stride = s.y_stride,
       .y_offset = s.y_offset,
       .op = plan.op_index() + 1})
      .Emit((static_cast<uint64_t>(plan.Max(rows) * outer * s.inner) + kCopyThreads - 1) /
            kCopyThreads);
}

// Copies `inner` elements of each of `outer` runs per row.
void MoveRuns(PlanBuilder& plan, uint32_t x, int64_t outer, const Stretch& s) {
  Run(plan, kCopy, {BytesOf(plan.Result())}, {.x = {.value = x}}, outer, s);
}

// Rows of the result, element by element.
Stretch WholeRows(const PlanBuilder& plan) {
  const int64_t inner = RowElements(plan.Result());
  return {inner, inner, 0, inner, 0};
}

// The result shares the memory of x, as the host's plan of memory lets it.
void Reshape(PlanBuilder& plan) {
  const uint32_t x = plan.InputIndex(operands::Reshape::x);
  const uint32_t y = plan.ResultIndex();
  if (plan.addresses().AddressOf(x) == plan.addresses().AddressOf(y)) return;
  if (IsPrivate(plan.Result())) {
    plan.addresses().Alias(y, x, 0);
  } else {
    Copy(plan);
  }
}

// Product of dims from `axis` on.
int64_t From(const rl_value& value, uint32_t axis) {
  int64_t elements = 1;
  for (; axis < value.rank; ++axis) elements *= value.dims[axis].constant;
  return elements;
}

void Slice(PlanBuilder& plan) {
  const auto& a = plan.attrs<rl_slice_attrs>();
  const rl_value& x = plan.Input(operands::Slice::x);
  const auto axis = static_cast<uint32_t>(a.axis);
  const int64_t after = From(x, axis + 1);
  const int64_t before = RowElements(x) / From(x, axis);
  const Stretch s{a.size * after, From(x, axis), a.start * after, a.size * after, 0};
  // A part of a single row is where it is; shaders want what they read at a multiple of 16 bytes.
  // The host's plan of memory knows of no alias, so that it may reuse the memory of the row after
  // this op.
  const uint64_t offset = static_cast<uint64_t>(s.x_offset) * BytesOf(x);
  const bool stays = !IsPrivate(x) || plan.steps().LeaveTransientsUnaliased();
  if (stays && before == 1 && plan.MaxRows(x) == 1 && offset % 16 == 0 &&
      IsPrivate(plan.Result())) {
    plan.addresses().Alias(plan.ResultIndex(), plan.InputIndex(operands::Slice::x), offset);
    return;
  }
  MoveRuns(plan, plan.InputIndex(operands::Slice::x), before, s);
}

void Concat(PlanBuilder& plan) {
  const auto axis = static_cast<uint32_t>(plan.attrs<rl_concat_attrs>().axis);
  const int64_t whole = From(plan.Result(), axis);
  int64_t at = 0;
  for (const uint32_t i : {operands::Concat::a, operands::Concat::b}) {
    const int64_t part = From(plan.Input(i), axis);
    MoveRuns(plan, plan.InputIndex(i), RowElements(plan.Result()) / whole,
             {part, part, 0, whole, at});
    at += part;
  }
}

void Pad(PlanBuilder& plan) {
  const auto a = plan.attrs<rl_pad_attrs>();
  const uint32_t x = plan.InputIndex(operands::Pad::x);
  const auto axis = static_cast<uint32_t>(a.axis);
  const int64_t whole = From(plan.Result(), axis);
  const Stretch s{whole, From(plan.graph().value(x), axis),
                  a.before * From(plan.Result(), axis + 1), whole, 0};
  Run(plan, kPad, {BytesOf(plan.Result())}, {.x = {.value = x}}, RowElements(plan.Result()) / whole,
      s);
}

void Quantise(PlanBuilder& plan) {
  const rl_value& y = plan.Result();
  const int64_t blocks = RowElements(y) / InfoOf(TypeOf(y)).block_elements;
  DispatchBuilder(plan, kernels::QuantiseRows{.threads = kCopyThreads, .to = y.dtype},
                  {.x = plan.InputIndex(operands::Cast::x),
                   .y = plan.ResultIndex(),
                   .rows = {y.dims[0], blocks}})
      .Emit(CeilDiv(static_cast<uint64_t>(plan.MaxRows(y) * blocks), kCopyThreads));
}

void Cast(PlanBuilder& plan) {
  if (IsBlockType(TypeOf(plan.Result()))) return Quantise(plan);
  const uint32_t x = plan.InputIndex(operands::Cast::x);
  Run(plan, kCast, {plan.graph().value(x).dtype, plan.Result().dtype}, {.x = {.value = x}}, 1,
      WholeRows(plan));
}

void Where(PlanBuilder& plan) {
  Run(plan, kWhere, {BytesOf(plan.Result())},
      {.x = {.value = plan.InputIndex(operands::Where::a)},
       .b = plan.InputIndex(operands::Where::b),
       .condition = plan.InputIndex(operands::Where::condition)},
      1, WholeRows(plan));
}

void GatherLast(PlanBuilder& plan) {
  const rl_value& x = plan.Input(operands::GatherLast::x);
  const Stretch s{1, Last(x), 0, 0, 0};
  Run(plan, kGatherLast, {x.dtype},
      {.x = {.value = plan.InputIndex(operands::GatherLast::x)},
       .b = plan.InputIndex(operands::GatherLast::index)},
      1, s);
}

void GatherRows(PlanBuilder& plan) {
  const auto& a = plan.attrs<rl_gather_rows_attrs>();
  const rl_value& table = plan.Input(operands::GatherRows::table);
  const DType dtype = TypeOf(table);
  const bool constant = table.lifetime == RL_LIFETIME_CONSTANT;
  const bool decoded = table.rank == 2 && dtype != DType::kF32 && dtype != DType::kI32;
  int64_t columns = RowElements(table);
  uint64_t stride = RowBytes(dtype, static_cast<uint64_t>(columns));
  uint64_t blocks = 0;
  if (constant) {
    const WeightShape& shape = PlanBuilder::WeightOf(table).shape();
    if (table.rank == 2) stride = shape.stride;
    blocks = shape.blocks;
  }
  if (a.columns > 0) columns = a.columns;
  const auto rows = static_cast<uint64_t>(plan.MaxRows(table));
  std::vector<DeviceWeight::Piece> pieces = {
      {{0, rows}, plan.addresses().AddressOf(plan.InputIndex(operands::GatherRows::table))}};
  if (constant && table.rank == 2) pieces = PlanBuilder::WeightOf(table).pieces();
  for (const DeviceWeight::Piece& piece : pieces) {
    DispatchBuilder(
        plan,
        kernels::GatherRows{
            .threads = kRowThreads, .type = table.dtype, .raw = decoded ? 0 : BytesOf(table)},
        {.table = piece.address,
         .ids = plan.InputIndex(operands::GatherRows::ids),
         .y = plan.ResultIndex(),
         .rows = plan.Result().dims[0],
         .table_rows = rows,
         .first = piece.rows.first,
         .rows_there = piece.rows.count,
         .stride = stride,
         .blocks = blocks,
         .column = a.column,
         .columns = columns,
         .op = plan.op_index() + 1})
        .Reads(plan.InputIndex(operands::GatherRows::table))
        .Emit(static_cast<uint64_t>(plan.MaxRows(plan.Result())));
  }
}

void StateAppend(PlanBuilder& plan) {
  using operands::StateAppend;
  const rl_value& state = plan.Input(StateAppend::state);
  const rl_value& rows = plan.Input(StateAppend::rows);
  const int64_t elements = RowElements(state) / state.dims[1].constant;
  // Blocks are pairs of bytes.
  const bool blocks = IsBlockType(TypeOf(state));
  const uint32_t bytes = blocks ? 2 : BytesOf(state);
  const auto inner =
      static_cast<int64_t>(RowBytes(TypeOf(state), static_cast<uint64_t>(elements)) / bytes);
  DispatchBuilder(plan, kernels::StateAppend{.threads = kRowThreads, .bytes = bytes},
                  {.state = plan.InputIndex(StateAppend::state),
                   .x = plan.InputIndex(StateAppend::rows),
                   .pos = plan.InputIndex(StateAppend::pos),
                   .slot = plan.InputIndex(StateAppend::slot),
                   .rows = rows.dims[0],
                   .slots = state.dims[0].constant,
                   .capacity = state.dims[1].constant,
                   .inner = inner,
                   .op = plan.op_index() + 1})
      .Emit(static_cast<uint64_t>(plan.MaxRows(rows)));
}

// RefusePlain, but for keys and values in blocks.
std::string RefuseCache(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits) {
  const DType type = TypeOf(graph.result(op));
  return sdk::IsBlockCacheType(type) ? RefuseShapes(graph, op, limits)
                                     : RefusePlain(graph, op, limits);
}

std::string RefuseGatherRows(const sdk::GraphView& graph, const rl_op& op,
                             const DeviceLimits& limits) {
  const rl_value& table = *graph.input(op, operands::GatherRows::table);
  std::string reason = RefuseShapes(graph, op, limits, table.rank == 2);
  if (!reason.empty()) return reason;
  const DType dtype = TypeOf(table);
  const bool constant = table.lifetime == RL_LIFETIME_CONSTANT;
  if (constant && table.rank != 2 && !ShapeOfConstant(table).contiguous()) {
    return "a constant of several rows, which are padded";
  }
  const bool copied =
      IsPlainType(dtype) && (table.rank != 2 || dtype == DType::kF32 || dtype == DType::kI32);
  if (copied || (constant && IsMatrixType(dtype))) return {};
  return "table of type " + std::string(NameOf(dtype));
}

}  // namespace

void CopyColumns(PlanBuilder& plan, const ColumnCopy& copy) {
  DispatchBuilder(
      plan,
      kernels::StridedCopy{.threads = kCopyThreads, .op = kCopy, .from = sizeof(float), .to = 0},
      {.x = copy.from,
       .y = copy.to,
       .rows = copy.rows,
       .inner = copy.columns,
       .x_stride = copy.from_columns,
       .x_offset = copy.from_first,
       .y_stride = copy.to_columns,
       .y_offset = copy.to_first,
       .op = plan.op_index() + 1})
      .Emit(CeilDiv(static_cast<uint64_t>(plan.Max(copy.rows) * copy.columns), kCopyThreads));
}

void Copy(PlanBuilder& plan) {
  MoveRuns(plan, plan.InputIndex(operands::Copy::x), 1, WholeRows(plan));
}

const OpRow rows::kReshape = {RL_OP_reshape, RefusePlain, Reshape};
// The elements of fold_rows keep their order, but the host may give the memory of x to another
// value while the result is still read, so they are copied.
const OpRow rows::kFoldRows = {RL_OP_fold_rows, RefusePlain, Copy};
const OpRow rows::kSlice = {RL_OP_slice, RefusePlain, Slice};
const OpRow rows::kConcat = {RL_OP_concat, RefusePlain, Concat};
const OpRow rows::kPad = {RL_OP_pad, RefusePlain, Pad};
const OpRow rows::kCast = {RL_OP_cast, RefuseCache, Cast};
const OpRow rows::kCopy = {RL_OP_copy, RefusePlain, Copy};
const OpRow rows::kWhere = {RL_OP_where, RefusePlain, Where};
const OpRow rows::kGatherRows = {RL_OP_gather_rows, RefuseGatherRows, GatherRows};
const OpRow rows::kGatherLast = {RL_OP_gather_last, RefusePlain, GatherLast};
const OpRow rows::kStateAppend = {RL_OP_state_append, RefuseCache, StateAppend};

}  // namespace rullama::gpu

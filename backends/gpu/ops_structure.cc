// reshape, slice, concat, cast, copy, gather_rows, gather_last, where, state_append.
#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

enum Move : uint32_t { kMove = 0, kCast = 1, kWhere = 2, kGatherLast = 3 };  // of move.comp

constexpr uint32_t kThreads = 256;
constexpr uint32_t kRowThreads = 128;

uint32_t BytesOf(const rl_value& value) { return InfoOf(TypeOf(value)).block_bytes; }

struct Stretch {
  int64_t inner, x_stride, x_offset, y_stride, y_offset;
};

struct Operands {
  Operand x;
  uint32_t b = RL_NO_VALUE;
  uint32_t condition = RL_NO_VALUE;
};

// To the result, by the constants of move.comp; `outer` runs per row.
void Run(PlanBuilder& plan, std::vector<uint32_t> constants, const Operands& o, int64_t outer,
         const Stretch& s) {
  const rl_dim& rows = plan.Result().dims[0];
  constants.insert(constants.begin(), kThreads);
  DispatchBuilder dispatch(plan, Shader::kMove, std::move(constants));
  Place(dispatch, o.x, false)
      .Read(o.b)
      .Read(o.condition)
      .Write(plan.ResultIndex())
      .Rows(rows, outer)
      .U32(s.inner)
      .U32(s.x_stride)
      .U32(s.x_offset)
      .U32(s.y_stride)
      .U32(s.y_offset)
      .Go((static_cast<uint64_t>(plan.Most(rows) * outer * s.inner) + kThreads - 1) / kThreads);
}

// Copies `inner` elements of each of `outer` runs per row.
void MoveRuns(PlanBuilder& plan, uint32_t x, int64_t outer, const Stretch& s) {
  Run(plan, {kMove, BytesOf(plan.Result()), 0}, {.x = {.value = x}}, outer, s);
}

// Rows of the result, element by element.
Stretch WholeRows(const PlanBuilder& plan) {
  const int64_t inner = RowElements(plan.Result());
  return {inner, inner, 0, inner, 0};
}

void Reshape(PlanBuilder& plan) {
  const uint32_t x = plan.InputIndex(0);
  const uint32_t y = plan.ResultIndex();
  if (plan.Place(x).begin == plan.Place(y).begin) return;
  if (IsPrivate(plan.Result())) {
    plan.Alias(y, x, 0);
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
  const rl_value& x = plan.Input(0);
  const auto axis = static_cast<uint32_t>(a.axis);
  const int64_t after = From(x, axis + 1);
  const int64_t before = RowElements(x) / From(x, axis);
  const Stretch s{a.size * after, From(x, axis), a.start * after, a.size * after, 0};
  // A part of a single row is where it is; shaders want what they read at a multiple of 16 bytes.
  const uint64_t offset = static_cast<uint64_t>(s.x_offset) * BytesOf(x);
  if (before == 1 && plan.MostRows(x) == 1 && offset % 16 == 0 && IsPrivate(plan.Result())) {
    plan.Alias(plan.ResultIndex(), plan.InputIndex(0), offset);
    return;
  }
  MoveRuns(plan, plan.InputIndex(0), before, s);
}

void Concat(PlanBuilder& plan) {
  const auto axis = static_cast<uint32_t>(plan.attrs<rl_concat_attrs>().axis);
  const int64_t whole = From(plan.Result(), axis);
  int64_t at = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    const int64_t part = From(plan.Input(i), axis);
    MoveRuns(plan, plan.InputIndex(i), RowElements(plan.Result()) / whole,
             {part, part, 0, whole, at});
    at += part;
  }
}

void Cast(PlanBuilder& plan) {
  Run(plan, {kCast, plan.Input(0).dtype, plan.Result().dtype}, {.x = {.value = plan.InputIndex(0)}},
      1, WholeRows(plan));
}

void Where(PlanBuilder& plan) {
  const Operands operands{
      .x = {.value = plan.InputIndex(1)}, .b = plan.InputIndex(2), .condition = plan.InputIndex(0)};
  Run(plan, {kWhere, BytesOf(plan.Result()), 0}, operands, 1, WholeRows(plan));
}

void GatherLast(PlanBuilder& plan) {
  // In place of the result's stride, the op for a failure.
  const Stretch s{1, Last(plan.Input(0)), 0, plan.op_index() + 1, 0};
  Run(plan, {kGatherLast, plan.Input(0).dtype, 0},
      {.x = {.value = plan.InputIndex(0)}, .b = plan.InputIndex(1)}, 1, s);
}

void GatherRows(PlanBuilder& plan) {
  const auto& a = plan.attrs<rl_gather_rows_attrs>();
  const rl_value& table = plan.Input(0);
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
  const auto rows = static_cast<uint64_t>(plan.MostRows(table));
  std::vector<DeviceWeight::Piece> pieces = {{{0, rows}, plan.Place(plan.InputIndex(0)).begin}};
  if (constant && table.rank == 2) pieces = PlanBuilder::WeightOf(table).pieces();
  for (const DeviceWeight::Piece& piece : pieces) {
    DispatchBuilder(plan, Shader::kGatherRows,
                    {kRowThreads, table.dtype, decoded ? 0 : BytesOf(table)})
        .Reads(plan.InputIndex(0))
        .Pointer(piece.address)
        .Read(plan.InputIndex(1))
        .Write(plan.ResultIndex())
        .Rows(plan.Result().dims[0])
        .U32(static_cast<int64_t>(rows))
        .U32(static_cast<int64_t>(piece.rows.first))
        .U32(static_cast<int64_t>(piece.rows.count))
        .U32(static_cast<int64_t>(stride))
        .U32(static_cast<int64_t>(blocks))
        .U32(a.column)
        .U32(columns)
        .U32(plan.op_index() + 1)
        .Go(static_cast<uint64_t>(plan.MostRows(plan.Result())));
  }
}

void StateAppend(PlanBuilder& plan) {
  const rl_value& state = plan.Input(0);
  const int64_t inner = RowElements(state) / state.dims[1].constant;
  DispatchBuilder(plan, Shader::kStateAppend, {kRowThreads, BytesOf(state)})
      .Write(plan.InputIndex(0))
      .Read(plan.InputIndex(1))
      .Read(plan.InputIndex(2))
      .Read(plan.InputIndex(3))
      .Rows(plan.Input(1).dims[0])
      .U32(state.dims[0].constant)
      .U32(state.dims[1].constant)
      .U32(inner)
      .U32(plan.op_index() + 1)
      .Go(static_cast<uint64_t>(plan.MostRows(plan.Input(1))));
}

}  // namespace

void PutColumns(PlanBuilder& plan, const Scratch& from, int64_t columns, int64_t first) {
  Run(plan, {kMove, BytesOf(plan.Result()), 0}, {.x = {.scratch = from}}, 1,
      {columns, columns, 0, RowElements(plan.Result()), first});
}

void Copy(PlanBuilder& plan) { MoveRuns(plan, plan.InputIndex(0), 1, WholeRows(plan)); }

bool CompileStructure(PlanBuilder& plan) {
  switch (plan.op().kind) {
    case RL_OP_reshape:
      Reshape(plan);
      return true;
    case RL_OP_slice:
      Slice(plan);
      return true;
    case RL_OP_concat:
      Concat(plan);
      return true;
    case RL_OP_cast:
      Cast(plan);
      return true;
    case RL_OP_copy:
      Copy(plan);
      return true;
    case RL_OP_where:
      Where(plan);
      return true;
    case RL_OP_gather_rows:
      GatherRows(plan);
      return true;
    case RL_OP_gather_last:
      GatherLast(plan);
      return true;
    case RL_OP_state_append:
      StateAppend(plan);
      return true;
    default:
      return false;
  }
}

}  // namespace rullama::gpu

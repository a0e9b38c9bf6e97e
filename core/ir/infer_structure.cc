// Structure: reshape, slice, concat, cast, copy, gathers, and appending to a state.
#include <rullama/sdk/cache_rows.h>

#include <algorithm>
#include <array>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

Types InferReshape(Context& c) {
  using In = operands::Reshape;
  const auto& a = c.attrs<rl_reshape_attrs>();
  const TensorType& x = c.operand(In::x);
  if (a.rank < 1 || a.rank > kMaxRank) {
    c.Fail("rank {} is outside 1 to {}", a.rank, kMaxRank);
    return {};
  }
  TensorType y = x;
  y.rank = a.rank;
  const std::array<int64_t, 3> inner = {a.d1, a.d2, a.d3};
  int64_t new_elements = 1;
  for (int axis = 1; axis < kMaxRank; ++axis) {
    const int64_t size = inner[static_cast<size_t>(axis - 1)];
    y.dim(axis) = axis < a.rank ? Dim(size) : Dim();
    if (axis >= a.rank) continue;
    if (size < 1 || size > kMaxElements / new_elements) {
      c.Fail("dimension {} of size {} is out of range", axis, size);
      return {};
    }
    new_elements *= size;
  }
  int64_t old_elements = 1;  // CheckType has bounded the product
  for (int axis = 1; axis < x.rank; ++axis) {
    if (!x.dim(axis).IsConstant()) c.Fail("inner dimensions of {} are not constant", ToString(x));
    old_elements *= std::max<int64_t>(x.dim(axis).constant, 1);
  }
  if (old_elements != new_elements) {
    c.Fail("{} elements a row cannot become {}", old_elements, new_elements);
  }
  c.WantPlain(In::x);
  return {y};
}

Types InferSlice(Context& c) {
  using In = operands::Slice;
  const auto& a = c.attrs<rl_slice_attrs>();
  TensorType y = c.operand(In::x);
  if (!c.WantPlain(In::x) || !WantInnerAxis(c, a.axis)) return {};
  const Dim& dim = y.dim(a.axis);
  if (!dim.IsConstant() || a.start < 0 || a.size < 1 || a.start > dim.constant - a.size) {
    c.Fail("[{}, +{}) is outside axis {} of {}", a.start, a.size, a.axis, ToString(y));
  }
  y.dim(a.axis) = a.size;
  return {y};
}

Types InferConcat(Context& c) {
  using In = operands::Concat;
  const int axis = c.attrs<rl_concat_attrs>().axis;
  TensorType y = c.operand(In::a);
  if (!c.WantPlain(In::a) || !WantInnerAxis(c, axis)) return {};
  const TensorType& b = c.operand(In::b);
  TensorType expected = y;
  if (b.rank == y.rank) expected.dim(axis) = b.dim(axis);
  if (!c.WantType(In::b, expected)) return {};
  const Dim& da = y.dim(axis);
  const Dim& db = b.dim(axis);
  y.dim(axis) = Dim(da.constant + db.constant, da.t + db.t, da.r + db.r);
  return {y};
}

Types InferCast(Context& c) {
  using In = operands::Cast;
  TensorType y = c.operand(In::x);
  const auto* to = FindDType(static_cast<uint32_t>(c.attrs<rl_cast_attrs>().dtype));
  const auto castable = [](DType dtype) { return IsFloat(dtype) || dtype == DType::kI32; };
  const bool quantises =
      to != nullptr && y.dtype == DType::kF32 && sdk::IsBlockCacheType(to->dtype);
  if (to == nullptr || !castable(y.dtype) || !(castable(to->dtype) || quantises)) {
    c.Fail(
        "cannot cast {} to {}; f32, f16, bf16 and i32 convert into each other, f32 to q8_0 and "
        "q4_0",
        ToString(y), to == nullptr ? "an unknown type" : to->name);
    return {};
  }
  y.dtype = to->dtype;
  return {y};
}

Types InferCopy(Context& c) {
  using In = operands::Copy;
  c.WantPlain(In::x);
  return {c.operand(In::x)};
}

Types InferGatherRows(Context& c) {
  using In = operands::GatherRows;
  const auto& a = c.attrs<rl_gather_rows_attrs>();
  const TensorType& table = c.operand(In::table);
  if (!c.WantRank(In::ids, 1) || !c.WantDType(In::ids, DType::kI32)) return {};
  TensorType y = table;
  y.dim(0) = c.operand(In::ids).rows();
  const bool is_weight = table.rank == 2 && table.dtype != DType::kI32 && table.last().IsConstant();
  if (!is_weight) {
    if (a.column != 0 || a.columns != 0) c.Fail("columns of {} cannot be chosen", ToString(table));
    c.WantPlain(In::table);
    return {y};
  }
  const int64_t width = table.last().constant;
  const int64_t block = InfoOf(table.dtype).block_elements;
  const int64_t columns = a.columns == 0 ? width - a.column : a.columns;
  if (a.column < 0 || columns < 1 || a.column > width - columns || a.column % block != 0 ||
      columns % block != 0) {
    c.Fail("columns [{}, +{}) of {} are out of range or not a multiple of {}", a.column, columns,
           ToString(table), block);
  }
  y.dtype = DType::kF32;
  y.dim(1) = columns;
  return {y};
}

Types InferGatherLast(Context& c) {
  using In = operands::GatherLast;
  const TensorType& x = c.operand(In::x);
  if (x.dtype != DType::kF32 && x.dtype != DType::kI32) {
    c.Fail("operand x is {}, expected f32 or i32", ToString(x));
  }
  if (!c.WantRank(In::x, 2) || !c.WantIndex(In::index, x.rows())) return {};
  return {TensorType(x.dtype, {x.rows()})};
}

Types InferFoldRows(Context& c) {
  using In = operands::FoldRows;
  const int64_t group = c.attrs<rl_fold_rows_attrs>().group;
  const TensorType& x = c.operand(In::x);
  if (!c.WantPlain(In::x)) return {};
  const auto rows = WantGroupsOfRows(c, In::x, group);
  if (!rows) return {};
  int64_t elements = 1;  // CheckType has bounded the product
  for (int axis = 1; axis < x.rank; ++axis) {
    if (!x.dim(axis).IsConstant()) c.Fail("inner dimensions of {} are not constant", ToString(x));
    elements *= std::max<int64_t>(x.dim(axis).constant, 1);
  }
  if (group > kMaxElements / elements) {
    c.Fail("{} rows of {} elements are too long a row", group, elements);
    return {};
  }
  return {TensorType(x.dtype, {*rows, group * elements})};
}

Types InferIm2Col(Context& c) {
  using In = operands::Im2Col;
  constexpr int64_t kMaxKernel = 31;
  const auto& a = c.attrs<rl_im2col_attrs>();
  if (a.kernel < 1 || a.kernel > kMaxKernel || a.kernel % 2 == 0) {
    c.Fail("kernel is {}, expected an odd number up to {}", a.kernel, kMaxKernel);
  }
  if (!c.WantDType(In::x, DType::kF32) || !c.WantRank(In::x, 3)) return {};
  const TensorType& x = c.operand(In::x);
  const auto rows = WantGroupsOfRows(c, In::x, a.stride);
  if (!c.ok()) return {};
  if (!x.dim(1).IsConstant() || x.dim(1).constant % a.stride != 0 || !x.dim(2).IsConstant()) {
    c.Fail("the columns of {} are not a multiple of the stride {}", ToString(x), a.stride);
    return {};
  }
  const int64_t width = x.dim(1).constant / a.stride;
  const int64_t columns = x.dim(2).constant * a.kernel * a.kernel;
  if (width > kMaxRows / std::max<int64_t>({rows->constant, rows->t, rows->r, 1})) {
    c.Fail("{} gives too many patches", ToString(x));
    return {};
  }
  const Dim patches(rows->constant * width, static_cast<int32_t>(rows->t * width),
                    static_cast<int32_t>(rows->r * width));
  return {TensorType(DType::kF32, {patches, columns})};
}

Types InferStateAppend(Context& c) {
  using In = operands::StateAppend;
  const TensorType& state = c.operand(In::state);
  const TensorType& rows = c.operand(In::rows);
  if (state.rank < 2 || rows.rank != state.rank - 1) {
    c.Fail("rows {} do not fit state {}", ToString(rows), ToString(state));
    return {};
  }
  if (IsBlockType(state.dtype) && !sdk::IsBlockCacheType(state.dtype)) {
    c.Fail("state {} is neither of a plain dtype nor q8_0 or q4_0", ToString(state));
  }
  TensorType expected = rows;
  expected.dtype = state.dtype;
  for (int axis = 1; axis < rows.rank; ++axis) expected.dim(axis) = state.dim(axis + 1);
  c.WantType(In::rows, expected);
  c.WantIndex(In::pos, rows.rows());
  c.WantIndex(In::slot, rows.rows());
  return {state};
}

}  // namespace rullama::infer_internal

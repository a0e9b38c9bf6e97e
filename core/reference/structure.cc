// Structure ops: reshape, copy, fold_rows, slice, concat, pad, cast, gather_rows, gather_last.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

// Copies elements between two tensors of one dtype.
void CopyElements(const Tensor& from, int64_t first, int64_t count, Tensor& to, int64_t at) {
  if (IsInteger(from.dtype)) {
    std::copy_n(from.i.begin() + static_cast<std::ptrdiff_t>(first), count,
                to.i.begin() + static_cast<std::ptrdiff_t>(at));
  } else {
    std::copy_n(from.f.begin() + static_cast<std::ptrdiff_t>(first), count,
                to.f.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

// Product of the dims before and after an axis.
struct AxisSplit {
  int64_t outer = 1;
  int64_t inner = 1;
};

AxisSplit SplitAt(const Tensor& x, int axis) {
  AxisSplit split;
  for (int i = 0; i < static_cast<int>(x.dims.size()); ++i) {
    if (i < axis) split.outer *= x.dims[static_cast<size_t>(i)];
    if (i > axis) split.inner *= x.dims[static_cast<size_t>(i)];
  }
  return split;
}

int64_t TruncateToI32(double value) {
  if (std::isnan(value)) return 0;
  constexpr double kMin = std::numeric_limits<int32_t>::min();
  constexpr double kMax = std::numeric_limits<int32_t>::max();
  return static_cast<int64_t>(std::clamp(std::trunc(value), kMin, kMax));
}

}  // namespace

Status EvalReshape(const Call& call) {
  using In = operands::Reshape;
  CopyElements(call.in(In::x), 0, call.in(In::x).elements(), call.y(), 0);
  return OkStatus();
}

Status EvalCopy(const Call& call) { return EvalReshape(call); }

Status EvalFoldRows(const Call& call) { return EvalReshape(call); }

Status EvalSlice(const Call& call) {
  using In = operands::Slice;
  const auto& a = call.As<rl_slice_attrs>();
  const Tensor& x = call.in(In::x);
  const AxisSplit split = SplitAt(x, a.axis);
  const int64_t size = x.dims[static_cast<size_t>(a.axis)];
  for (int64_t o = 0; o < split.outer; ++o) {
    CopyElements(x, (o * size + a.start) * split.inner, a.size * split.inner, call.y(),
                 o * a.size * split.inner);
  }
  return OkStatus();
}

Status EvalConcat(const Call& call) {
  using In = operands::Concat;
  const int axis = call.As<rl_concat_attrs>().axis;
  const AxisSplit split = SplitAt(call.in(In::a), axis);
  const int64_t a = call.in(In::a).dims[static_cast<size_t>(axis)] * split.inner;
  const int64_t b = call.in(In::b).dims[static_cast<size_t>(axis)] * split.inner;
  for (int64_t o = 0; o < split.outer; ++o) {
    CopyElements(call.in(In::a), o * a, a, call.y(), o * (a + b));
    CopyElements(call.in(In::b), o * b, b, call.y(), o * (a + b) + a);
  }
  return OkStatus();
}

Status EvalPad(const Call& call) {
  using In = operands::Pad;
  const auto& a = call.As<rl_pad_attrs>();
  const Tensor& x = call.in(In::x);
  const AxisSplit split = SplitAt(x, a.axis);
  const int64_t size = x.dims[static_cast<size_t>(a.axis)];
  const int64_t padded = call.y().dims[static_cast<size_t>(a.axis)];
  for (int64_t o = 0; o < split.outer; ++o) {
    CopyElements(x, o * size * split.inner, size * split.inner, call.y(),
                 (o * padded + a.before) * split.inner);
  }
  return OkStatus();
}

Status EvalCast(const Call& call) {
  using In = operands::Cast;
  const Tensor& x = call.in(In::x);
  Tensor& y = call.y();
  if (IsBlockType(y.dtype)) {
    y.f = x.f;
    RoundAll(y.dtype, y.f);
    return OkStatus();
  }
  for (size_t j = 0; j < static_cast<size_t>(x.elements()); ++j) {
    if (IsInteger(x.dtype) && IsInteger(y.dtype)) {
      y.i[j] = x.i[j];
    } else if (IsInteger(y.dtype)) {
      y.i[j] = TruncateToI32(x.f[j]);
    } else if (IsInteger(x.dtype)) {
      y.f[j] = RoundTo(y.dtype, static_cast<double>(x.i[j]));
    } else {
      // f32 holds float64 in the reference; only the 16-bit grids lose precision.
      y.f[j] = y.dtype == DType::kF32 ? x.f[j] : RoundTo(y.dtype, x.f[j]);
    }
  }
  return OkStatus();
}

Status EvalGatherRows(const Call& call) {
  using In = operands::GatherRows;
  const auto& a = call.As<rl_gather_rows_attrs>();
  const Tensor& table = call.in(In::table);
  const Tensor& ids = call.in(In::ids);
  Tensor& y = call.y();
  const int64_t width = table.row_elements();
  const int64_t count = y.row_elements();  // columns, or the whole row
  for (int64_t row = 0; row < ids.rows(); ++row) {
    const int64_t id = ids.i[static_cast<size_t>(row)];
    if (id < 0 || id >= table.rows()) {
      return IndexError(call, "id {} of row {} is outside the {} rows of the table", id, row,
                        table.rows());
    }
    const int64_t first = id * width + a.column;
    if (IsInteger(y.dtype)) {
      for (int64_t j = 0; j < count; ++j) {
        y.i[static_cast<size_t>(row * count + j)] = ReadInt(table, first + j);
      }
    } else {
      const std::span<double> out(y.f.data() + row * count, static_cast<size_t>(count));
      RL_RETURN_IF_ERROR(ReadFloats(table, first, out));
    }
  }
  return OkStatus();
}

Status EvalGatherLast(const Call& call) {
  using In = operands::GatherLast;
  const Tensor& x = call.in(In::x);
  Tensor& y = call.y();
  for (int64_t row = 0; row < x.rows(); ++row) {
    const auto to = static_cast<size_t>(row);
    const int64_t index = call.in(In::index).i[to];
    if (index >= x.last()) {
      return IndexError(call, "index {} of row {} is outside the {} columns", index, row, x.last());
    }
    const auto from = static_cast<size_t>(row * x.last() + index);
    if (IsInteger(x.dtype)) {
      y.i[to] = index < 0 ? -1 : x.i[from];
    } else {
      y.f[to] = index < 0 ? std::numeric_limits<double>::quiet_NaN() : x.f[from];
    }
  }
  return OkStatus();
}

}  // namespace rullama::reference

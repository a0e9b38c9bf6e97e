// Ops that copy, convert or select elements.
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

size_t ElementBytes(DType dtype) { return InfoOf(dtype).block_bytes; }

// Copies x to y; a no-op if both share memory. Used by reshape, fold_rows, copy and casts to the
// same type.
class CopyNode final : public Node {
 public:
  CopyNode(const View& x, const View& y) : x_(x), y_(y) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return x_.data == y_.data ? 0 : y_.Rows(step);
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const size_t row = static_cast<size_t>(y_.RowElements(step)) * ElementBytes(y_.dtype);
    std::memcpy(y_.data + static_cast<size_t>(begin) * row,
                x_.data + static_cast<size_t>(begin) * row, static_cast<size_t>(end - begin) * row);
  }

 private:
  View x_, y_;
};

// Slice and concat. For each index of the dimensions before `axis`, copies a run of x that starts
// at x_start to y at y_start. Either x or y is a part of the other along `axis`; the shorter one is
// copied as a whole.
class AxisCopyNode final : public Node {
 public:
  AxisCopyNode(const View& x, const View& y, int axis, int64_t x_start, int64_t y_start)
      : x_(x), y_(y), axis_(axis), x_start_(x_start), y_start_(y_start) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    int64_t middle = 1;  // dimensions between the rows and the axis
    for (int axis = 1; axis < axis_; ++axis) middle *= x_.Dim(axis, step);
    int64_t inner = static_cast<int64_t>(ElementBytes(x_.dtype));
    for (int axis = axis_ + 1; axis < x_.rank; ++axis) inner *= x_.Dim(axis, step);
    const int64_t x_run = x_.Dim(axis_, step) * inner;
    const int64_t y_run = y_.Dim(axis_, step) * inner;
    const auto bytes = static_cast<size_t>(std::min(x_run, y_run));
    for (int64_t i = begin * middle; i < end * middle; ++i) {
      std::memcpy(y_.data + i * y_run + y_start_ * inner, x_.data + i * x_run + x_start_ * inner,
                  bytes);
    }
  }

 private:
  View x_, y_;
  int axis_;
  int64_t x_start_, y_start_;
};

class CastNode final : public Node {
 public:
  CastNode(const KernelTable& kernels, const View& x, const View& y)
      : kernels_(kernels), x_(x), y_(y) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto row = static_cast<size_t>(y_.RowElements(step));
    const size_t from = static_cast<size_t>(begin) * row;
    const size_t n = static_cast<size_t>(end - begin) * row;
    if (IsBlockType(y_.dtype)) {
      sdk::QuantizeCacheRow(y_.dtype, x_.as<const float>() + from, n,
                            y_.data + RowBytes(y_.dtype, from));
    } else if (x_.dtype == DType::kF32 && y_.dtype == DType::kF16) {
      kernels_.f32_to_f16(x_.as<const float>() + from, n, y_.as<uint16_t>() + from);
    } else if (x_.dtype == DType::kF16 && y_.dtype == DType::kF32) {
      kernels_.f16_to_f32(x_.as<const uint16_t>() + from, n, y_.as<float>() + from);
    } else {
      for (size_t i = from; i < from + n; ++i) Store(i, Load(i));
    }
  }

 private:
  // float represents every castable type except large i32, and casts from i32 to i32 use CopyNode.
  [[nodiscard]] float Load(size_t i) const {
    switch (x_.dtype) {
      case DType::kF16:
        return HalfToFloat(x_.as<const uint16_t>()[i]);
      case DType::kBF16:
        return BFloat16ToFloat(x_.as<const uint16_t>()[i]);
      case DType::kI32:
        return static_cast<float>(x_.as<const int32_t>()[i]);
      default:
        return x_.as<const float>()[i];
    }
  }
  void Store(size_t i, float value) const {
    switch (y_.dtype) {
      case DType::kF16:
        y_.as<uint16_t>()[i] = FloatToHalf(value);
        break;
      case DType::kBF16:
        y_.as<uint16_t>()[i] = FloatToBFloat16(value);
        break;
      case DType::kI32:
        y_.as<int32_t>()[i] = Truncate(value);
        break;
      default:
        y_.as<float>()[i] = value;
    }
  }
  // Saturates, since the plain conversion is undefined out of range; NaN gives 0.
  static int32_t Truncate(float value) {
    if (std::isnan(value)) return 0;
    if (value >= 0x1p31f) return std::numeric_limits<int32_t>::max();
    if (value <= -0x1p31f) return std::numeric_limits<int32_t>::min();
    return static_cast<int32_t>(value);
  }

  const KernelTable& kernels_;
  View x_, y_;
};

// True for tables whose rows gather_rows dequantises to f32; rows of other tables are copied.
bool IsDequantized(DType dtype, uint32_t rank) {
  return rank == 2 && dtype != DType::kF32 && dtype != DType::kI32;
}

class GatherRowsNode final : public Node {
 public:
  explicit GatherRowsNode(const CompileContext& context)
      : table_(context.Input(operands::GatherRows::table)),
        ids_(context.Input(operands::GatherRows::ids)),
        y_(context.Result()),
        column_(context.attrs<rl_gather_rows_attrs>().column) {
    if (IsDequantized(table_.dtype, static_cast<uint32_t>(table_.rank))) {
      weight_ = FindWeight(context.kernels, table_.dtype);
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t table_rows = table_.Rows(step);
    const auto width = static_cast<uint64_t>(table_.RowElements(step));
    const auto columns = static_cast<size_t>(y_.RowElements(step));
    const uint64_t row_bytes = RowBytes(table_.dtype, width);
    const uint64_t column_bytes = RowBytes(table_.dtype, static_cast<uint64_t>(column_));
    for (int64_t i = begin; i < end; ++i) {
      const int32_t id = ids_.as<const int32_t>()[i];
      if (id < 0 || id >= table_rows) {
        Fail("gather_rows: id " + std::to_string(id) + " is outside the table of " +
             std::to_string(table_rows) + " rows");
        return;
      }
      if (weight_ != nullptr) {
        ReadRow(*weight_, table_.dtype,
                {table_.data, table_.packed, static_cast<size_t>(width), static_cast<size_t>(id)},
                static_cast<size_t>(column_), columns,
                y_.as<float>() + static_cast<size_t>(i) * columns);
      } else {
        const std::byte* row = table_.data + static_cast<uint64_t>(id) * row_bytes + column_bytes;
        const size_t bytes = columns * ElementBytes(y_.dtype);
        std::memcpy(y_.data + static_cast<size_t>(i) * bytes, row, bytes);
      }
    }
  }

 private:
  View table_, ids_, y_;
  int64_t column_;
  const WeightKernels* weight_ = nullptr;
};

class GatherLastNode final : public Node {
 public:
  explicit GatherLastNode(const CompileContext& context)
      : x_(context.Input(operands::GatherLast::x)),
        index_(context.Input(operands::GatherLast::index)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = x_.Last(step);
    for (int64_t i = begin; i < end; ++i) {
      const int32_t index = index_.as<const int32_t>()[i];
      if (index >= n) {
        Fail("gather_last: index " + std::to_string(index) + " is outside " + std::to_string(n) +
             " columns");
        return;
      }
      if (x_.dtype == DType::kI32) {
        y_.as<int32_t>()[i] = index < 0 ? -1 : x_.as<const int32_t>()[i * n + index];
      } else {
        y_.as<float>()[i] = index < 0 ? std::numeric_limits<float>::quiet_NaN()
                                      : x_.as<const float>()[i * n + index];
      }
    }
  }

 private:
  View x_, index_, y_;
};

// y = condition != 0 ? a : b for elements of any plain dtype.
class WhereNode final : public Node {
 public:
  explicit WhereNode(const CompileContext& context)
      : condition_(context.Input(operands::Where::condition)),
        a_(context.Input(operands::Where::a)),
        b_(context.Input(operands::Where::b)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t row = y_.RowElements(step);
    const size_t size = InfoOf(y_.dtype).block_bytes;
    for (int64_t i = begin * row; i < end * row; ++i) {
      const View& from = condition_.as<const float>()[i] != 0 ? a_ : b_;
      const size_t at = static_cast<size_t>(i) * size;
      std::memcpy(y_.data + at, from.data + at, size);
    }
  }

 private:
  View condition_, a_, b_, y_;
};

void CompileCopy(const CompileContext& context) {
  context.nodes.Add(std::make_unique<CopyNode>(context.Input(operands::Copy::x), context.Result()));
}

void CompileReshape(const CompileContext& context) {
  context.nodes.Add(
      std::make_unique<CopyNode>(context.Input(operands::Reshape::x), context.Result()));
}

// Rows of a group follow each other already.
void CompileFoldRows(const CompileContext& context) {
  context.nodes.Add(
      std::make_unique<CopyNode>(context.Input(operands::FoldRows::x), context.Result()));
}

void CompileSlice(const CompileContext& context) {
  const auto& attrs = context.attrs<rl_slice_attrs>();
  context.nodes.Add(std::make_unique<AxisCopyNode>(context.Input(operands::Slice::x),
                                                   context.Result(), attrs.axis, attrs.start, 0));
}

// The offset of b along the axis must be known when the plan is compiled.
std::string RefuseConcat(const sdk::GraphView& graph, const rl_op& op,
                         const KernelTable& /*kernels*/) {
  const int32_t axis = sdk::GraphView::attrs<rl_concat_attrs>(op).axis;
  const rl_dim& dim = graph.input(op, operands::Concat::a)->dims[axis];
  return dim.t == 0 && dim.r == 0 ? "" : "concat along a dimension that depends on T or R";
}

void CompileConcat(const CompileContext& context) {
  const int axis = context.attrs<rl_concat_attrs>().axis;
  const View a = context.Input(operands::Concat::a);
  const View b = context.Input(operands::Concat::b);
  const View y = context.Result();
  context.nodes.Add(std::make_unique<AxisCopyNode>(a, y, axis, 0, 0));
  context.nodes.Add(std::make_unique<AxisCopyNode>(b, y, axis, 0, a.dims[axis].constant));
}

void CompileCast(const CompileContext& context) {
  const View x = context.Input(operands::Cast::x);
  const View y = context.Result();
  if (x.dtype == y.dtype) {
    context.nodes.Add(std::make_unique<CopyNode>(x, y));
  } else {
    context.nodes.Add(std::make_unique<CastNode>(context.kernels, x, y));
  }
}

std::string RefuseGatherRows(const sdk::GraphView& graph, const rl_op& op,
                             const KernelTable& kernels) {
  const rl_value& table = *graph.input(op, operands::GatherRows::table);
  const auto dtype = static_cast<DType>(table.dtype);
  if (!IsDequantized(dtype, table.rank) || FindWeight(kernels, dtype) != nullptr) return {};
  return "weight type " + std::string(NameOf(dtype));
}

}  // namespace

const OpRow rows::kReshape = {RL_OP_reshape, nullptr, CompileReshape};
const OpRow rows::kFoldRows = {RL_OP_fold_rows, nullptr, CompileFoldRows};
const OpRow rows::kSlice = {RL_OP_slice, nullptr, CompileSlice};
const OpRow rows::kConcat = {RL_OP_concat, RefuseConcat, CompileConcat};
const OpRow rows::kCast = {RL_OP_cast, nullptr, CompileCast};
const OpRow rows::kCopy = {RL_OP_copy, nullptr, CompileCopy};
const OpRow rows::kGatherRows = {RL_OP_gather_rows, RefuseGatherRows, AddNode<GatherRowsNode>};
const OpRow rows::kGatherLast = {RL_OP_gather_last, nullptr, AddNode<GatherLastNode>};
const OpRow rows::kWhere = {RL_OP_where, nullptr, AddNode<WhereNode>};

}  // namespace rullama::cpu

// Adjoints of gathers and slices, and the sum of squares.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Elements that a worker takes at a time where rows do not matter.
constexpr int64_t kPiece = 8192;

int64_t Pieces(int64_t elements) { return (elements + kPiece - 1) / kPiece; }

// Items are spans of columns, so that each element has its sum from one worker, in order.
class ScatterRowsNode final : public Node {
 public:
  explicit ScatterRowsNode(const CompileContext& context)
      : kernels_(context.kernels),
        x_(context.Input(operands::ScatterRows::x)),
        rows_(context.Input(operands::ScatterRows::rows)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return (y_.RowElements(step) + kSpan - 1) / kSpan;
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = y_.RowElements(step);
    const int64_t first = begin * kSpan;
    const auto count = static_cast<size_t>(std::min(end * kSpan, n) - first);
    const int64_t y_rows = y_.Rows(step);
    for (int64_t row = 0; row < y_rows; ++row) {
      std::fill_n(y_.as<float>() + row * n + first, count, 0.0f);
    }
    for (int64_t i = 0; i < x_.Rows(step); ++i) {
      const int32_t row = rows_.as<const int32_t>()[i];
      if (row < 0 || row >= y_rows) {
        Fail("scatter_rows: row " + std::to_string(row) + " is outside the " +
             std::to_string(y_rows) + " rows of the step");
        return;
      }
      float* y = y_.as<float>() + row * n + first;
      kernels_.add(y, x_.as<const float>() + i * n + first, count, y);
    }
  }

 private:
  static constexpr int64_t kSpan = 256;

  const KernelTable& kernels_;
  View x_, rows_, y_;
};

class ScatterLastNode final : public Node {
 public:
  explicit ScatterLastNode(const CompileContext& context)
      : x_(context.Input(operands::ScatterLast::x)),
        index_(context.Input(operands::ScatterLast::index)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = y_.Last(step);
    const int64_t k = x_.RowElements(step);
    std::fill_n(y_.as<float>() + begin * n, (end - begin) * n, 0.0f);
    for (int64_t i = begin * k; i < end * k; ++i) {
      const int32_t index = index_.as<const int32_t>()[i];
      if (index >= n) {
        Fail("scatter_last: index " + std::to_string(index) + " is outside " + std::to_string(n) +
             " columns");
        return;
      }
      if (index >= 0) y_.as<float>()[i / k * n + index] += x_.as<const float>()[i];
    }
  }

 private:
  View x_, index_, y_;
};

// Zeros around x along an inner axis. Items are rows.
class PadNode final : public Node {
 public:
  explicit PadNode(const CompileContext& context)
      : attrs_(context.attrs<rl_pad_attrs>()),
        x_(context.Input(operands::Pad::x)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    int64_t middle = 1;  // dimensions between the rows and the axis
    for (int axis = 1; axis < attrs_.axis; ++axis) middle *= x_.Dim(axis, step);
    int64_t inner = InfoOf(x_.dtype).block_bytes;
    for (int axis = attrs_.axis + 1; axis < x_.rank; ++axis) inner *= x_.Dim(axis, step);
    const auto front = static_cast<size_t>(attrs_.before * inner);
    const auto run = static_cast<size_t>(x_.Dim(attrs_.axis, step) * inner);
    const auto back = static_cast<size_t>(attrs_.after * inner);
    std::byte* y = y_.data + static_cast<size_t>(begin * middle) * (front + run + back);
    const std::byte* x = x_.data + static_cast<size_t>(begin * middle) * run;
    for (int64_t i = begin * middle; i < end * middle; ++i) {
      std::memset(y, 0, front);
      std::memcpy(y + front, x, run);
      std::memset(y + front + run, 0, back);
      y += front + run + back;
      x += run;
    }
  }

 private:
  rl_pad_attrs attrs_;
  View x_, y_;
};

// The sums of pieces of x, whose size depends on no number of workers.
class SumSquaresNode final : public Node {
 public:
  SumSquaresNode(const View& x, double* sums) : x_(x), sums_(sums) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return Pieces(x_.Elements(step)); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t count = std::min(kPiece, x_.Elements(step) - i * kPiece);
      double sum = 0;
      for (int64_t j = 0; j < count; ++j) {
        const double value = x_.as<const float>()[i * kPiece + j];
        sum += value * value;
      }
      sums_[i] = sum;
    }
  }

 private:
  View x_;
  double* sums_;
};

// Adds the sums of the pieces in order.
class AddPiecesNode final : public Node {
 public:
  AddPiecesNode(const View& x, const double* sums, const View& y) : x_(x), sums_(sums), y_(y) {}
  [[nodiscard]] int64_t Items(const Step& /*step*/) const override { return 1; }
  void Run(const Step& step, int /*worker*/, int64_t /*begin*/, int64_t /*end*/) override {
    double sum = 0;
    for (int64_t i = 0; i < Pieces(x_.Elements(step)); ++i) sum += sums_[i];
    *y_.as<float>() = static_cast<float>(sum);
  }

 private:
  View x_;
  const double* sums_;
  View y_;
};

void CompileSumSquares(const CompileContext& context) {
  const View x = context.Input(operands::SumSquares::x);
  const auto pieces = static_cast<uint64_t>(Pieces(x.Elements(context.MaxStep())));
  auto* sums = reinterpret_cast<double*>(context.workspace.AllocateForOp(pieces * sizeof(double)));
  context.nodes.Add(std::make_unique<SumSquaresNode>(x, sums));
  context.nodes.Add(std::make_unique<AddPiecesNode>(x, sums, context.Result()));
}

}  // namespace

const OpRow rows::kScatterRows = {RL_OP_scatter_rows, nullptr, AddNode<ScatterRowsNode>};
const OpRow rows::kScatterLast = {RL_OP_scatter_last, nullptr, AddNode<ScatterLastNode>};
const OpRow rows::kPad = {RL_OP_pad, nullptr, AddNode<PadNode>};
const OpRow rows::kSumSquares = {RL_OP_sum_squares, nullptr, CompileSumSquares};

}  // namespace rullama::cpu

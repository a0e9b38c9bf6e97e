// Losses and derivatives.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "backends/cpu/kernels/training_kernels.h"
#include "backends/cpu/loss_targets.h"
#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Elements that a worker takes at a time where rows do not matter.
constexpr int64_t kPiece = 8192;

int64_t Pieces(int64_t elements) { return (elements + kPiece - 1) / kPiece; }

class CrossEntropyNode final : public Node {
 public:
  explicit CrossEntropyNode(const CompileContext& context)
      : kernels_(TrainingKernelsFor(context.kernels.isa)),
        logits_(context.Input(operands::CrossEntropy::logits)),
        n_(logits_.Last(context.MaxStep())),
        targets_(context.Input(operands::CrossEntropy::targets), n_),
        loss_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return logits_.Rows(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    for (int64_t row = begin; row < end; ++row) {
      const float* z = logits_.as<const float>() + row * n_;
      loss_.as<float>()[row] =
          targets_.Counts(row)
              ? kernels_.cross_entropy(z, static_cast<size_t>(n_), targets_.Column(row))
              : 0.0f;
    }
  }

 private:
  const TrainingKernels& kernels_;
  View logits_;
  int64_t n_;
  LossTargets targets_;
  View loss_;
};

class CrossEntropyGradNode final : public Node {
 public:
  explicit CrossEntropyGradNode(const CompileContext& context)
      : kernels_(TrainingKernelsFor(context.kernels.isa)),
        logits_(context.Input(operands::CrossEntropyGrad::logits)),
        factor_(context.Input(operands::CrossEntropyGrad::factor)),
        n_(logits_.Last(context.MaxStep())),
        targets_(context.Input(operands::CrossEntropyGrad::targets), n_),
        dlogits_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return logits_.Rows(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    for (int64_t row = begin; row < end; ++row) {
      const float* z = logits_.as<const float>() + row * n_;
      float* dz = dlogits_.as<float>() + row * n_;
      if (targets_.Counts(row)) {
        kernels_.cross_entropy_grad(z, static_cast<size_t>(n_), targets_.Column(row),
                                    *factor_.as<const float>(), 0.0f, dz);
      } else {
        std::fill_n(dz, n_, 0.0f);
      }
    }
  }

 private:
  const TrainingKernels& kernels_;
  View logits_, factor_;
  int64_t n_;
  LossTargets targets_;
  View dlogits_;
};

// Derivatives along the last dimension, of a value `of` and dy. Items are rows.
class LastDimGradNode : public Node {
 public:
  LastDimGradNode(const CompileContext& context, uint32_t of, uint32_t dy)
      : kernels_(TrainingKernelsFor(context.kernels.isa)),
        of_(context.Input(of)),
        dy_(context.Input(dy)),
        dx_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return dx_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) final {
    const int64_t n = dx_.Last(step);
    const int64_t row = dx_.RowElements(step);
    for (int64_t at = begin * row; at < end * row; at += n) {
      RunOne(of_.as<const float>() + at, dy_.as<const float>() + at, static_cast<size_t>(n),
             dx_.as<float>() + at);
    }
  }

 protected:
  virtual void RunOne(const float* of, const float* dy, size_t n, float* dx) = 0;
  const TrainingKernels& kernels_;

 private:
  View of_, dy_, dx_;
};

class SoftmaxGradNode final : public LastDimGradNode {
 public:
  explicit SoftmaxGradNode(const CompileContext& context)
      : LastDimGradNode(context, operands::SoftmaxGrad::y, operands::SoftmaxGrad::dy) {}

 private:
  void RunOne(const float* y, const float* dy, size_t n, float* dx) override {
    kernels_.softmax_grad(y, dy, n, dx);
  }
};

class RmsNormGradNode final : public LastDimGradNode {
 public:
  explicit RmsNormGradNode(const CompileContext& context)
      : LastDimGradNode(context, operands::RmsNormGrad::x, operands::RmsNormGrad::dy),
        weight_(context.Input(operands::RmsNormGrad::weight)),
        eps_(context.attrs<rl_rms_norm_grad_attrs>().eps) {}

 private:
  void RunOne(const float* x, const float* dy, size_t n, float* dx) override {
    kernels_.rms_norm_grad(x, dy, weight_.as<const float>(), n, eps_, dx);
  }

  View weight_;
  float eps_;
};

class GeGluGradNode final : public Node {
 public:
  explicit GeGluGradNode(const CompileContext& context)
      : kernels_(TrainingKernelsFor(context.kernels.isa)),
        gate_(context.Input(operands::GeGluGrad::gate)),
        up_(context.Input(operands::GeGluGrad::up)),
        dy_(context.Input(operands::GeGluGrad::dy)),
        dgate_(context.Result(0)),
        dup_(context.Result(1)) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return Pieces(dy_.Elements(step));
  }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t from = begin * kPiece;
    const int64_t to = std::min(end * kPiece, dy_.Elements(step));
    kernels_.geglu_grad(gate_.as<const float>() + from, up_.as<const float>() + from,
                        dy_.as<const float>() + from, static_cast<size_t>(to - from),
                        dgate_.as<float>() + from, dup_.as<float>() + from);
  }

 private:
  const TrainingKernels& kernels_;
  View gate_, up_, dy_, dgate_, dup_;
};

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
  SumSquaresNode(const TrainingKernels& kernels, const View& x, double* sums)
      : kernels_(kernels), x_(x), sums_(sums) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return Pieces(x_.Elements(step)); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t count = std::min(kPiece, x_.Elements(step) - i * kPiece);
      sums_[i] =
          kernels_.sum_squares(x_.as<const float>() + i * kPiece, static_cast<size_t>(count));
    }
  }

 private:
  const TrainingKernels& kernels_;
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
  context.nodes.Add(
      std::make_unique<SumSquaresNode>(TrainingKernelsFor(context.kernels.isa), x, sums));
  context.nodes.Add(std::make_unique<AddPiecesNode>(x, sums, context.Result()));
}

}  // namespace

const OpRow rows::kCrossEntropy = {RL_OP_cross_entropy, nullptr, AddNode<CrossEntropyNode>};
const OpRow rows::kCrossEntropyGrad = {RL_OP_cross_entropy_grad, nullptr,
                                       AddNode<CrossEntropyGradNode>};
const OpRow rows::kSoftmaxGrad = {RL_OP_softmax_grad, nullptr, AddNode<SoftmaxGradNode>};
const OpRow rows::kRmsNormGrad = {RL_OP_rms_norm_grad, nullptr, AddNode<RmsNormGradNode>};
const OpRow rows::kGeGluGrad = {RL_OP_geglu_grad, nullptr, AddNode<GeGluGradNode>};
const OpRow rows::kScatterRows = {RL_OP_scatter_rows, nullptr, AddNode<ScatterRowsNode>};
const OpRow rows::kScatterLast = {RL_OP_scatter_last, nullptr, AddNode<ScatterLastNode>};
const OpRow rows::kPad = {RL_OP_pad, nullptr, AddNode<PadNode>};
const OpRow rows::kSumSquares = {RL_OP_sum_squares, nullptr, CompileSumSquares};

}  // namespace rullama::cpu

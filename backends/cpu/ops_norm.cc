// Normalisations along the last dimension.
#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Applies RunOne() to every vector along the last dimension. Items are rows of x.
class LastDimNode : public Node {
 public:
  LastDimNode(const KernelTable& kernels, const View& x, const View& y)
      : kernels_(kernels), x_(x), y_(y) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) final {
    const auto n = static_cast<size_t>(x_.Last(step));
    const size_t per_row = static_cast<size_t>(x_.RowElements(step)) / n;
    for (size_t i = static_cast<size_t>(begin) * per_row; i < static_cast<size_t>(end) * per_row;
         ++i) {
      RunOne(i, n, x_.as<const float>() + i * n, y_.as<float>() + i * n);
    }
  }

 protected:
  virtual void RunOne(size_t index, size_t n, const float* x, float* y) = 0;
  const KernelTable& kernels_;

 private:
  View x_, y_;
};

class RmsNormNode final : public LastDimNode {
 public:
  explicit RmsNormNode(const CompileContext& context)
      : LastDimNode(context.kernels, context.Input(operands::RmsNorm::x), context.Result()),
        weight_(context.Input(operands::RmsNorm::weight)),
        eps_(context.attrs<rl_rms_norm_attrs>().eps) {}

 private:
  void RunOne(size_t /*index*/, size_t n, const float* x, float* y) override {
    kernels_.rms_norm(x, weight_.as<const float>(), n, eps_, y);
  }

  View weight_;
  float eps_;
};

class ResidualNormNode final : public LastDimNode {
 public:
  explicit ResidualNormNode(const CompileContext& context)
      : LastDimNode(context.kernels, context.Input(operands::ResidualNorm::x), context.Result()),
        residual_(context.Input(operands::ResidualNorm::residual)),
        weight_(context.Input(operands::ResidualNorm::weight)),
        scale_(context.Input(operands::ResidualNorm::scale)),
        eps_(context.attrs<rl_residual_norm_attrs>().eps) {}

 private:
  void RunOne(size_t index, size_t n, const float* x, float* y) override {
    kernels_.rms_norm_add(x, weight_.as<const float>(), residual_.as<const float>() + index * n, n,
                          eps_, y);
    if (scale_.present()) kernels_.affine(y, n, *scale_.as<const float>(), 0.0f, y);
  }

  View residual_, weight_, scale_;
  float eps_;
};

class SoftmaxNode final : public LastDimNode {
 public:
  explicit SoftmaxNode(const CompileContext& context)
      : LastDimNode(context.kernels, context.Input(operands::Softmax::x), context.Result()) {}

 private:
  void RunOne(size_t /*index*/, size_t n, const float* x, float* y) override {
    kernels_.softmax(x, n, y);
  }
};

}  // namespace

const OpRow rows::kRmsNorm = {RL_OP_rms_norm, nullptr, AddNode<RmsNormNode>};
const OpRow rows::kResidualNorm = {RL_OP_residual_norm, nullptr, AddNode<ResidualNormNode>};
const OpRow rows::kSoftmax = {RL_OP_softmax, nullptr, AddNode<SoftmaxNode>};

}  // namespace rullama::cpu

// The patches of a convolution in two dimensions, and the causal convolution along the rows.
#include <algorithm>

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Items are patches.
class Im2ColNode final : public Node {
 public:
  explicit Im2ColNode(const CompileContext& context)
      : kernel_(context.attrs<rl_im2col_attrs>().kernel),
        stride_(context.attrs<rl_im2col_attrs>().stride),
        x_(context.Input(operands::Im2Col::x)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t rows = x_.Rows(step);
    const int64_t width = x_.Dim(1, step);
    const int64_t patches = width / stride_;  // of a row
    for (int64_t patch = begin; patch < end; ++patch) {
      float* y = y_.as<float>() + patch * y_.Last(step);
      std::fill_n(y, y_.Last(step), 0.0f);
      const int64_t top = patch / patches * stride_ - kernel_ / 2;
      const int64_t left = patch % patches * stride_ - kernel_ / 2;
      for (int64_t a = std::max<int64_t>(0, -top); a < std::min(kernel_, rows - top); ++a) {
        for (int64_t b = std::max<int64_t>(0, -left); b < std::min(kernel_, width - left); ++b) {
          CopyPixel(step, (top + a) * width + left + b, y + a * kernel_ + b);
        }
      }
    }
  }

 private:
  // Channels lie next to each other in x, and kernel * kernel elements apart in a patch.
  void CopyPixel(const Step& step, int64_t pixel, float* y) const {
    const int64_t channels = x_.Dim(2, step);
    const float* x = x_.as<const float>() + pixel * channels;
    for (int64_t c = 0; c < channels; ++c) y[c * kernel_ * kernel_] = x[c];
  }

  int64_t kernel_, stride_;
  View x_, y_;
};

// Items are rows.
class CausalConv1dNode final : public Node {
 public:
  explicit CausalConv1dNode(const CompileContext& context)
      : x_(context.Input(operands::CausalConv1d::x)),
        weight_(context.Input(operands::CausalConv1d::weight)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t n = x_.Last(step);
    const int64_t kernel = weight_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      float* y = y_.as<float>() + row * n;
      std::fill_n(y, n, 0.0f);
      for (int64_t j = std::max<int64_t>(0, kernel - 1 - row); j < kernel; ++j) {
        const float* x = x_.as<const float>() + (row - kernel + 1 + j) * n;
        const float* weight = weight_.as<const float>() + j;
        for (int64_t c = 0; c < n; ++c) y[c] += weight[c * kernel] * x[c];
      }
    }
  }

 private:
  View x_, weight_, y_;
};

}  // namespace

const OpRow rows::kIm2Col = {RL_OP_im2col, nullptr, AddNode<Im2ColNode>};
const OpRow rows::kCausalConv1d = {RL_OP_causal_conv1d, nullptr, AddNode<CausalConv1dNode>};

}  // namespace rullama::cpu

// Convolutions: the patches of one in two dimensions, and a causal one along the rows.
#include "core/reference/kernels.h"

namespace rullama::reference {

Status EvalIm2Col(const Call& call) {
  using In = operands::Im2Col;
  const auto& a = call.As<rl_im2col_attrs>();
  const Tensor& x = call.in(In::x);
  const int64_t rows = x.dims[0];
  const int64_t width = x.dims[1];
  const int64_t channels = x.dims[2];
  const int64_t patches = width / a.stride;  // of a row
  const int64_t pad = a.kernel / 2;
  for (int64_t patch = 0; patch < call.y().rows(); ++patch) {
    const int64_t top = patch / patches * a.stride - pad;
    const int64_t left = patch % patches * a.stride - pad;
    const auto y = Row(call.y(), patch);
    for (size_t j = 0; j < y.size(); ++j) {
      const auto at = static_cast<int64_t>(j);
      const int64_t channel = at / (a.kernel * a.kernel);
      const int64_t row = top + at / a.kernel % a.kernel;
      const int64_t column = left + at % a.kernel;
      if (row < 0 || row >= rows || column < 0 || column >= width) continue;
      y[j] = x.f[static_cast<size_t>((row * width + column) * channels + channel)];
    }
  }
  return OkStatus();
}

Status EvalCausalConv1d(const Call& call) {
  using In = operands::CausalConv1d;
  const Tensor& x = call.in(In::x);
  const Tensor& weight = call.in(In::weight);
  const int64_t kernel = weight.last();
  for (int64_t r = 0; r < x.rows(); ++r) {
    const auto y = Row(call.y(), r);
    for (int64_t j = 0; j < kernel; ++j) {
      const int64_t from = r - kernel + 1 + j;
      if (from < 0) continue;
      const auto row = Row(x, from);
      for (size_t c = 0; c < y.size(); ++c) {
        y[c] += Row(weight, static_cast<int64_t>(c))[static_cast<size_t>(j)] * row[c];
      }
    }
  }
  return OkStatus();
}

}  // namespace rullama::reference

// Normalisation: rms_norm, residual_norm and layer_norm.
#include <cmath>

#include "core/reference/kernels.h"

namespace rullama::reference {

void RmsNormRow(std::span<const double> x, std::span<const double> weight, double eps,
                std::span<double> y) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  for (size_t j = 0; j < x.size(); ++j) {
    y[j] = x[j] * scale * (weight.empty() ? 1.0 : weight[j]);
  }
}

Status EvalRmsNorm(const Call& call) {
  using In = operands::RmsNorm;
  const double eps = call.As<rl_rms_norm_attrs>().eps;
  const Tensor& x = call.in(In::x);
  const std::span<const double> weight = call.has(In::weight)
                                             ? std::span<const double>(call.in(In::weight).f)
                                             : std::span<const double>();
  for (int64_t r = 0; r < RowCount(x); ++r) RmsNormRow(Row(x, r), weight, eps, Row(call.y(), r));
  return OkStatus();
}

Status EvalResidualNorm(const Call& call) {
  using In = operands::ResidualNorm;
  const double eps = call.As<rl_residual_norm_attrs>().eps;
  const double scale = call.has(In::scale) ? call.in(In::scale).f[0] : 1.0;
  for (int64_t r = 0; r < call.y().rows(); ++r) {
    const auto y = Row(call.y(), r);
    RmsNormRow(Row(call.in(In::x), r), call.in(In::weight).f, eps, y);
    const auto residual = Row(call.in(In::residual), r);
    for (size_t j = 0; j < y.size(); ++j) y[j] = (residual[j] + y[j]) * scale;
  }
  return OkStatus();
}

Status EvalLayerNorm(const Call& call) {
  using In = operands::LayerNorm;
  const double eps = call.As<rl_layer_norm_attrs>().eps;
  const Tensor& x = call.in(In::x);
  for (int64_t r = 0; r < RowCount(x); ++r) {
    const auto in = Row(x, r);
    const auto y = Row(call.y(), r);
    double sum = 0;
    for (const double value : in) sum += value;
    const double mean = sum / static_cast<double>(in.size());
    for (size_t j = 0; j < in.size(); ++j) y[j] = in[j] - mean;
    RmsNormRow(y, call.in(In::weight).f, eps, y);
    if (!call.has(In::bias)) continue;
    for (size_t j = 0; j < y.size(); ++j) y[j] += call.in(In::bias).f[j];
  }
  return OkStatus();
}

}  // namespace rullama::reference

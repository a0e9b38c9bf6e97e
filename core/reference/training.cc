// Losses and derivatives.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

bool Counts(int64_t target, int64_t columns) { return target >= 0 && target < columns; }

// ln(sum exp z) - z[target], for a target that counts. The difference of the maximum and the
// target's logit is taken before the small logarithm is added, which large logits would swallow.
double LossOfRow(std::span<const double> z, int64_t target) {
  double max = -kInfinity;
  for (const double value : z) max = std::isnan(value) ? value : std::max(max, value);
  if (max == -kInfinity) return kInfinity;
  double sum = 0;
  for (const double value : z) sum += std::exp(value - max);
  return std::log(sum) + (max - z[static_cast<size_t>(target)]);
}

// factor * (softmax(z) - onehot(target)), for a target that counts.
void LossGradOfRow(std::span<const double> z, int64_t target, double factor, std::span<double> dz) {
  SoftmaxRow(z, dz);
  dz[static_cast<size_t>(target)] -= 1;
  for (double& value : dz) value *= factor;
}

}  // namespace

double GeluTanhGrad(double x) {
  // Far out it is 1 or 0 to the last bit, and x^3 overflows further out.
  constexpr double kSaturated = 10;
  if (std::abs(x) > kSaturated) return x > 0 ? 1.0 : 0.0;
  constexpr double kCubic = 0.044715;
  const double c = std::sqrt(2.0 / std::numbers::pi);
  const double t = std::tanh(c * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * kCubic * x * x);
}

Status EvalCrossEntropy(const Call& call) {
  using In = operands::CrossEntropy;
  const Tensor& logits = call.in(In::logits);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const int64_t target = call.in(In::targets).i[static_cast<size_t>(r)];
    if (!Counts(target, logits.last())) continue;
    call.y().f[static_cast<size_t>(r)] = LossOfRow(Row(logits, r), target);
  }
  return OkStatus();
}

Status EvalCrossEntropyGrad(const Call& call) {
  using In = operands::CrossEntropyGrad;
  const Tensor& logits = call.in(In::logits);
  const double factor = call.in(In::factor).f[0];
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const int64_t target = call.in(In::targets).i[static_cast<size_t>(r)];
    if (!Counts(target, logits.last())) continue;
    LossGradOfRow(Row(logits, r), target, factor, Row(call.y(), r));
  }
  return OkStatus();
}

Status EvalLinearCrossEntropy(const Call& call) {
  using In = operands::LinearCrossEntropy;
  const double cap = call.As<rl_linear_cross_entropy_attrs>().cap;
  const double factor = call.in(In::factor).f[0];
  const Tensor& x = call.in(In::x);
  const Tensor& weight = call.in(In::weight);
  Tensor logits = MakeZeros(DType::kF32, {x.rows(), weight.dims[0]});
  RL_RETURN_IF_ERROR(Linear(x, weight, logits));
  Tensor dlogits = MakeZeros(logits.dtype, logits.dims);
  for (int64_t r = 0; r < x.rows(); ++r) {
    const int64_t target = call.in(In::targets).i[static_cast<size_t>(r)];
    if (!Counts(target, logits.last())) continue;
    const auto z = Row(logits, r);
    const auto dz = Row(dlogits, r);
    if (cap > 0) std::ranges::for_each(z, [&](double& v) { v = cap * std::tanh(v / cap); });
    call.out[0].f[static_cast<size_t>(r)] = LossOfRow(z, target);
    LossGradOfRow(z, target, factor, dz);
    if (cap == 0) continue;
    for (size_t j = 0; j < dz.size(); ++j) dz[j] *= 1 - (z[j] / cap) * (z[j] / cap);
  }
  return LinearAsStored(dlogits, weight, call.out[1]);
}

Status EvalSoftmaxGrad(const Call& call) {
  using In = operands::SoftmaxGrad;
  for (int64_t r = 0; r < RowCount(call.y()); ++r) {
    const auto y = Row(call.in(In::y), r);
    const auto dy = Row(call.in(In::dy), r);
    const auto dx = Row(call.y(), r);
    double sum = 0;
    for (size_t j = 0; j < y.size(); ++j) sum += y[j] == 0 ? 0 : y[j] * dy[j];
    for (size_t j = 0; j < y.size(); ++j) dx[j] = y[j] == 0 ? 0 : y[j] * (dy[j] - sum);
  }
  return OkStatus();
}

Status EvalRmsNormGrad(const Call& call) {
  using In = operands::RmsNormGrad;
  const double eps = call.As<rl_rms_norm_grad_attrs>().eps;
  const auto n = static_cast<double>(call.y().last());
  for (int64_t r = 0; r < RowCount(call.y()); ++r) {
    const auto x = Row(call.in(In::x), r);
    const auto dy = Row(call.in(In::dy), r);
    const auto dx = Row(call.y(), r);
    double squares = 0;
    double products = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      dx[j] = dy[j] * (call.has(In::weight) ? call.in(In::weight).f[j] : 1.0);
      squares += x[j] * x[j];
      products += dx[j] * x[j];
    }
    const double scale = 1.0 / std::sqrt(squares / n + eps);
    for (size_t j = 0; j < x.size(); ++j) {
      dx[j] = scale * (dx[j] - x[j] * scale * scale * (products / n));
    }
  }
  return OkStatus();
}

Status EvalGeGluGrad(const Call& call) {
  using In = operands::GeGluGrad;
  for (size_t j = 0; j < call.y().f.size(); ++j) {
    const double gate = call.in(In::gate).f[j];
    const double dy = call.in(In::dy).f[j];
    call.out[0].f[j] = dy * call.in(In::up).f[j] * GeluTanhGrad(gate);
    call.out[1].f[j] = dy * GeluTanh(gate);
  }
  return OkStatus();
}

Status EvalScatterRows(const Call& call) {
  using In = operands::ScatterRows;
  const Tensor& x = call.in(In::x);
  const auto n = static_cast<size_t>(x.row_elements());
  for (int64_t i = 0; i < x.rows(); ++i) {
    const int64_t row = call.in(In::rows).i[static_cast<size_t>(i)];
    if (row < 0 || row >= call.y().rows()) {
      return IndexError(call, "row {} of element {} is outside the {} rows of the step", row, i,
                        call.y().rows());
    }
    for (size_t j = 0; j < n; ++j) {
      call.y().f[static_cast<size_t>(row) * n + j] += x.f[static_cast<size_t>(i) * n + j];
    }
  }
  return OkStatus();
}

Status EvalScatterLast(const Call& call) {
  using In = operands::ScatterLast;
  const Tensor& x = call.in(In::x);
  const auto k = static_cast<size_t>(x.dims.size() == 2 ? x.last() : 1);
  for (size_t j = 0; j < x.f.size(); ++j) {
    const auto row = static_cast<int64_t>(j / k);
    const int64_t index = call.in(In::index).i[j];
    if (index >= call.y().last()) {
      return IndexError(call, "index {} of row {} is outside the {} columns", index, row,
                        call.y().last());
    }
    if (index >= 0) Row(call.y(), row)[static_cast<size_t>(index)] += x.f[j];
  }
  return OkStatus();
}

Status EvalSumSquares(const Call& call) {
  for (const double value : call.in(operands::SumSquares::x).f) call.y().f[0] += value * value;
  return OkStatus();
}

}  // namespace rullama::reference

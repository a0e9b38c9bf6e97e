// Products with weights of any type. A packed weight is decoded row by row, each row once, so that
// a model file can be used in place.
#include <algorithm>
#include <vector>

#include "core/reference/dot_lanes.h"
#include "core/reference/kernels.h"

namespace rullama::reference {

Status Linear(const Tensor& x, const Tensor& weight, Tensor& y) {
  const int64_t n = weight.dims[0];
  const auto k = static_cast<size_t>(weight.dims[1]);
  std::vector<double> row(k);
  std::vector<Lanes> lanes(k);
  for (int64_t j = 0; j < n; j += kLanes) {
    const int64_t count = std::min<int64_t>(kLanes, n - j);
    RL_RETURN_IF_ERROR(ReadLanes(weight, j, count, row, lanes));
    for (int64_t r = 0; r < x.rows(); ++r) {
      const Lanes sums = DotLanes(Row(x, r), lanes);
      std::copy_n(sums.begin(), count, y.f.begin() + static_cast<std::ptrdiff_t>(r * n + j));
    }
  }
  return OkStatus();
}

Status LinearAsStored(const Tensor& x, const Tensor& weight, Tensor& y) {
  const int64_t k = weight.dims[0];
  const int64_t n = weight.dims[1];
  std::vector<double> row(static_cast<size_t>(n));
  for (int64_t i = 0; i < k; ++i) {
    RL_RETURN_IF_ERROR(ReadFloats(weight, i * n, row));
    for (int64_t r = 0; r < x.rows(); ++r) {
      AddScaled(x.f[static_cast<size_t>(r * k + i)], row, Row(y, r));
    }
  }
  return OkStatus();
}

Status EvalMatMul(const Call& call) {
  using In = operands::MatMul;
  const bool transposed = call.As<rl_matmul_attrs>().transpose_weight == 1;
  return transposed ? Linear(call.in(In::x), call.in(In::weight), call.y())
                    : LinearAsStored(call.in(In::x), call.in(In::weight), call.y());
}

namespace {

// y = x weight^T + (x a^T) b^T.
Status LinearWithAdapter(const Tensor& x, const Tensor& weight, const Tensor& a, const Tensor& b,
                         Tensor& y) {
  RL_RETURN_IF_ERROR(Linear(x, weight, y));
  Tensor inner = MakeZeros(DType::kF32, {x.rows(), a.dims[0]});
  RL_RETURN_IF_ERROR(Linear(x, a, inner));
  Tensor change = MakeZeros(y.dtype, y.dims);
  RL_RETURN_IF_ERROR(Linear(inner, b, change));
  for (size_t j = 0; j < y.f.size(); ++j) y.f[j] += change.f[j];
  return OkStatus();
}

}  // namespace

Status EvalAdaptedLinear(const Call& call) {
  using In = operands::AdaptedLinear;
  return LinearWithAdapter(call.in(In::x), call.in(In::weight), call.in(In::a), call.in(In::b),
                           call.y());
}

Status EvalAdaptedGeGluLinear(const Call& call) {
  using In = operands::AdaptedGeGluLinear;
  const Tensor& x = call.in(In::x);
  Tensor& y = call.y();
  RL_RETURN_IF_ERROR(
      LinearWithAdapter(x, call.in(In::gate_weight), call.in(In::gate_a), call.in(In::gate_b), y));
  Tensor up = MakeZeros(y.dtype, y.dims);
  RL_RETURN_IF_ERROR(
      LinearWithAdapter(x, call.in(In::up_weight), call.in(In::up_a), call.in(In::up_b), up));
  for (size_t j = 0; j < y.f.size(); ++j) y.f[j] = GeluTanh(y.f[j]) * up.f[j];
  return OkStatus();
}

Status EvalGeGluLinear(const Call& call) {
  using In = operands::GeGluLinear;
  Tensor& y = call.y();
  RL_RETURN_IF_ERROR(Linear(call.in(In::x), call.in(In::gate_weight), y));
  Tensor up = MakeZeros(y.dtype, y.dims);
  RL_RETURN_IF_ERROR(Linear(call.in(In::x), call.in(In::up_weight), up));
  for (size_t j = 0; j < y.f.size(); ++j) y.f[j] = GeluTanh(y.f[j]) * up.f[j];
  return OkStatus();
}

Status EvalPleInject(const Call& call) {
  using In = operands::PleInject;
  const double eps = call.As<rl_ple_inject_attrs>().eps;
  const Tensor& x = call.in(In::x);
  const Tensor& ple = call.in(In::ple);
  const double scale = call.has(In::scale) ? call.in(In::scale).f[0] : 1.0;
  Tensor gate = MakeZeros(ple.dtype, ple.dims);
  RL_RETURN_IF_ERROR(Linear(x, call.in(In::gate_weight), gate));
  for (size_t j = 0; j < gate.f.size(); ++j) gate.f[j] = GeluTanh(gate.f[j]) * ple.f[j];
  Tensor injected = MakeZeros(x.dtype, x.dims);
  RL_RETURN_IF_ERROR(Linear(gate, call.in(In::proj_weight), injected));
  for (int64_t r = 0; r < x.rows(); ++r) {
    const auto y = Row(call.y(), r);
    RmsNormRow(Row(injected, r), call.in(In::norm_weight).f, eps, y);
    for (size_t j = 0; j < y.size(); ++j) y[j] = (Row(x, r)[j] + y[j]) * scale;
  }
  return OkStatus();
}

Status EvalSoftEmbed(const Call& call) {
  using In = operands::SoftEmbed;
  const Tensor& logits = call.in(In::logits);
  Tensor probability = MakeZeros(logits.dtype, logits.dims);
  std::vector<double> scaled(static_cast<size_t>(logits.last()));
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const auto row = Row(logits, r);
    for (size_t j = 0; j < scaled.size(); ++j)
      scaled[j] = row[j] * call.in(In::inverse_temperature).f[0];
    SoftmaxRow(scaled, Row(probability, r));
  }
  return LinearAsStored(probability, call.in(In::table), call.y());
}

}  // namespace rullama::reference

// Pointwise ops: unary, binary, scale, affine, select, clamp, add_vector, softcap, geglu.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

double Apply(rl_unary fn, double x) {
  switch (fn) {
    case RL_UNARY_NEG:
      return -x;
    case RL_UNARY_ABS:
      return std::abs(x);
    case RL_UNARY_EXP:
      return std::exp(x);
    case RL_UNARY_LOG:
      return std::log(x);
    case RL_UNARY_SQRT:
      return std::sqrt(x);
    case RL_UNARY_RSQRT:
      return 1.0 / std::sqrt(x);
    case RL_UNARY_TANH:
      return std::tanh(x);
    case RL_UNARY_SIGMOID:
      return 1.0 / (1.0 + std::exp(-x));
    case RL_UNARY_GELU_TANH:
      return GeluTanh(x);
    case RL_UNARY_SILU:
      return x / (1.0 + std::exp(-x));
    case RL_UNARY_SQUARE:
      return x * x;
    case RL_UNARY_GELU_TANH_GRAD:
      return GeluTanhGrad(x);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double Apply(rl_binary fn, double a, double b) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (fn) {
    case RL_BINARY_ADD:
      return a + b;
    case RL_BINARY_SUB:
      return a - b;
    case RL_BINARY_MUL:
      return a * b;
    case RL_BINARY_DIV:
      return a / b;
    case RL_BINARY_MIN:
      return nan ? kNaN : std::min(a, b);
    case RL_BINARY_MAX:
      return nan ? kNaN : std::max(a, b);
    case RL_BINARY_LT:
      return a < b ? 1.0 : 0.0;
    case RL_BINARY_LE:
      return a <= b ? 1.0 : 0.0;
    case RL_BINARY_EQ:
      return a == b ? 1.0 : 0.0;
  }
  return kNaN;
}

}  // namespace

double GeluTanh(double x) {
  // The limits; the formula would give 0 * infinity for -infinity.
  if (std::isinf(x)) return x > 0 ? x : 0.0;
  constexpr double kCubic = 0.044715;
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + kCubic * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

Status EvalUnary(const Call& call) {
  using In = operands::Unary;
  const auto fn = static_cast<rl_unary>(call.As<rl_unary_attrs>().fn);
  const Tensor& x = call.in(In::x);
  for (size_t j = 0; j < x.f.size(); ++j) call.y().f[j] = Apply(fn, x.f[j]);
  return OkStatus();
}

Status EvalBinary(const Call& call) {
  using In = operands::Binary;
  const auto fn = static_cast<rl_binary>(call.As<rl_binary_attrs>().fn);
  const Tensor& a = call.in(In::a);
  const Tensor& b = call.in(In::b);
  for (size_t j = 0; j < a.f.size(); ++j) {
    // The index of the broadcast element, from the coordinates of element j.
    size_t rest = j;
    size_t stride = 1;
    size_t from = 0;
    for (size_t axis = a.dims.size(); axis-- > 0;) {
      const auto size = static_cast<size_t>(a.dims[axis]);
      const size_t coordinate = rest % size;
      rest /= size;
      if (b.dims[axis] != 1) from += coordinate * stride;
      stride *= static_cast<size_t>(b.dims[axis]);
    }
    call.y().f[j] = Apply(fn, a.f[j], b.f[from]);
  }
  return OkStatus();
}

Status EvalScale(const Call& call) {
  using In = operands::Scale;
  const Tensor& x = call.in(In::x);
  const Tensor& weight = call.in(In::weight);
  const auto n = static_cast<size_t>(weight.last());  // the last dimension of x, or 1
  for (size_t j = 0; j < x.f.size(); ++j) call.y().f[j] = x.f[j] * weight.f[j % n];
  return OkStatus();
}

Status EvalAffine(const Call& call) {
  using In = operands::Affine;
  const auto& a = call.As<rl_affine_attrs>();
  const Tensor& x = call.in(In::x);
  for (size_t j = 0; j < x.f.size(); ++j) {
    call.y().f[j] = x.f[j] * double{a.scale} + double{a.bias};
  }
  return OkStatus();
}

Status EvalClamp(const Call& call) {
  using In = operands::Clamp;
  const auto& a = call.As<rl_clamp_attrs>();
  const Tensor& x = call.in(In::x);
  for (size_t j = 0; j < x.f.size(); ++j) {
    call.y().f[j] = std::isnan(x.f[j]) ? x.f[j] : std::clamp(x.f[j], double{a.lo}, double{a.hi});
  }
  return OkStatus();
}

Status EvalAddVector(const Call& call) {
  using In = operands::AddVector;
  const Tensor& x = call.in(In::x);
  const std::vector<double>& vector = call.in(In::vector).f;
  for (size_t j = 0; j < x.f.size(); ++j) call.y().f[j] = x.f[j] + vector[j % vector.size()];
  return OkStatus();
}

Status EvalSelect(const Call& call) {
  using In = operands::Select;
  const double otherwise = call.As<rl_select_attrs>().otherwise;
  for (size_t j = 0; j < call.y().f.size(); ++j) {
    call.y().f[j] = call.in(In::condition).f[j] != 0 ? call.in(In::a).f[j] : otherwise;
  }
  return OkStatus();
}

Status EvalWhere(const Call& call) {
  using In = operands::Where;
  const std::vector<double>& condition = call.in(In::condition).f;
  Tensor& y = call.y();
  for (size_t j = 0; j < condition.size(); ++j) {
    const Tensor& from = call.in(condition[j] != 0 ? 1 : 2);
    if (IsInteger(y.dtype)) {
      y.i[j] = from.i[j];
    } else {
      y.f[j] = from.f[j];
    }
  }
  return OkStatus();
}

Status EvalSoftcap(const Call& call) {
  using In = operands::Softcap;
  const double cap = call.As<rl_softcap_attrs>().cap;
  const Tensor& x = call.in(In::x);
  for (size_t j = 0; j < x.f.size(); ++j) call.y().f[j] = cap * std::tanh(x.f[j] / cap);
  return OkStatus();
}

Status EvalGeGlu(const Call& call) {
  using In = operands::GeGlu;
  for (size_t j = 0; j < call.y().f.size(); ++j) {
    call.y().f[j] = GeluTanh(call.in(In::gate).f[j]) * call.in(In::up).f[j];
  }
  return OkStatus();
}

}  // namespace rullama::reference

#include "conformance/op_sizes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/reference/evaluate.h"

namespace rullama::conformance {

using reference::Tensor;

namespace {

// Each value replaced by the largest magnitude of its block of 32: what a quantised activation is
// rounded against.
Tensor BlockMaxima(const Tensor& x) {
  constexpr size_t kBlock = 32;
  Tensor result = Abs(x);
  const auto columns = static_cast<size_t>(std::max<int64_t>(1, x.last()));
  for (size_t row = 0; row < result.f.size(); row += columns) {
    for (size_t begin = row; begin < row + columns; begin += kBlock) {
      const auto first = result.f.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last =
          result.f.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kBlock, row + columns));
      std::fill(first, last, *std::max_element(first, last));
    }
  }
  return result;
}

// The activations of a linear layer as errors see them.
Tensor Activation(Norm norm, const Tensor& x, const Tensor& weight) {
  return Raised(norm, IsBlockType(weight.dtype) ? BlockMaxima(x) : Abs(x));
}

// The values of a product and the sizes of their terms.
struct Half {
  std::vector<double> value, size;
};
// gelu(g) u: an error e in g and u becomes gelu'(g) e |u| + |gelu(g)| e.
std::vector<double> GatedSize(Norm norm, const Half& gate, const Half& up) {
  std::vector<double> result = up.size;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = Raised(norm, kSteepest) * gate.size[i] * Raised(norm, up.value[i]) +
                Raised(norm, gate.value[i]) * result[i];
  }
  return result;
}

// The size of a linear layer plus those of its adapter's terms: of x a^T, times b.
std::vector<double> AdaptedSize(Norm norm, const Tensor& x, const Tensor& weight, const Tensor& a,
                                const Tensor& b) {
  std::vector<double> result = LinearSize(norm, x, weight, 1);
  Tensor inner = reference::MakeZeros(DType::kF32, {x.rows(), a.dims[0]});
  inner.f = LinearSize(norm, x, a, 1);
  const Tensor up = Raised(norm, Abs(b));
  const std::vector<double> change =
      Evaluate(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}), {&inner, &up});
  for (size_t i = 0; i < result.size(); ++i) result[i] += change[i];
  return result;
}

// The operands of an op by which rows have adapters.
struct AdaptersOfRows {
  const Tensor &a, &b, &ids, &factors;
};
template <typename Operands>
AdaptersOfRows AdaptersOf(const Site& s, size_t a, size_t b) {
  return {s.in(a), s.in(b), s.in(Operands::ids), s.in(Operands::factors)};
}

// `base` plus the sizes of the terms of x a^T, times b, times the factor of each place.
std::vector<double> AdapterSumSize(Norm norm, const std::vector<double>& base, const Tensor& x,
                                   const AdaptersOfRows& adapters) {
  const std::vector<int64_t>& pairs = adapters.ids.dims;
  Tensor sizes = reference::MakeZeros(DType::kF32, {pairs[0], adapters.b.dims[1]});
  sizes.f = base;
  Tensor inner = reference::MakeZeros(DType::kF32, {pairs[0], pairs[1], adapters.a.dims[1]});
  inner.f = GroupedSize(norm, x, adapters.a, adapters.ids);
  const Tensor up = Raised(norm, Abs(adapters.b));
  const Tensor factors = Raised(norm, Abs(adapters.factors));
  const std::vector<double> changes = Evaluate(
      OpKind::kGroupedMatMul, OpAttrs(OpKind::kGroupedMatMul), {&inner, &up, &adapters.ids});
  const auto columns = static_cast<size_t>(sizes.last());
  const auto places = static_cast<size_t>(pairs[1]);
  for (size_t i = 0; i < changes.size(); ++i) {
    const size_t pair = i / columns;
    sizes.f[pair / places * columns + i % columns] += factors.f[pair] * changes[i];
  }
  return sizes.f;
}

// The values and sizes of gate or up of every pair, whether they are one tensor or two.
Half HalfOf(Norm norm, const Site& s, size_t operand, bool second_half, int64_t inner) {
  using In = operands::MoeFfn;
  const Tensor& weight = s.in(operand);
  const std::vector<double> value =
      Evaluate(OpKind::kGroupedMatMul, OpAttrs(OpKind::kGroupedMatMul),
               {&s.in(In::x), &weight, &s.in(In::experts)});
  const std::vector<double> size = GroupedSize(norm, s.in(In::x), weight, s.in(In::experts));
  Half half;
  const auto width = static_cast<size_t>(inner);
  const auto stride = static_cast<size_t>(weight.dims[1]);
  for (size_t i = 0; i < value.size(); ++i) {
    if (i % stride / width != (second_half ? 1 : 0)) continue;
    half.value.push_back(value[i]);
    half.size.push_back(size[i]);
  }
  return half;
}

}  // namespace

Tensor Abs(const Tensor& tensor) {
  auto plain = reference::Unpack(tensor);
  Tensor result = plain ? *std::move(plain) : Tensor();
  for (double& value : result.f) value = std::abs(value);
  return result;
}

std::vector<double> Evaluate(OpKind kind, const OpAttrs& attrs,
                             const std::vector<const Tensor*>& operands) {
  auto results = reference::EvaluateOp(kind, attrs, operands);
  return results ? (*results)[0].f : std::vector<double>();
}

double Raised(Norm norm, double value) {
  return norm == Norm::kEnergy ? value * value : std::abs(value);
}

Tensor Raised(Norm norm, Tensor tensor) {
  for (double& value : tensor.f) value = Raised(norm, value);
  return tensor;
}

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

std::vector<double> RowMaxima(const Tensor& tensor) {
  std::vector<double> result = tensor.f;
  const auto columns = static_cast<size_t>(std::max<int64_t>(1, tensor.last()));
  for (size_t begin = 0; begin < result.size(); begin += columns) {
    double largest = 0;
    for (size_t i = begin; i < begin + columns; ++i) {
      if (std::isfinite(tensor.f[i])) largest = std::max(largest, std::abs(tensor.f[i]));
    }
    std::fill_n(result.begin() + static_cast<std::ptrdiff_t>(begin), columns, largest);
  }
  return result;
}

std::vector<double> LinearSize(Norm norm, const Tensor& x, const Tensor& weight, int transposed) {
  const Tensor largest = Activation(norm, x, weight);
  const Tensor weights = Raised(norm, Abs(weight));
  return Evaluate(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, transposed}), {&largest, &weights});
}

std::vector<double> GroupedSize(Norm norm, const Tensor& x, const Tensor& weight,
                                const Tensor& experts, int as_stored) {
  const Tensor largest = Activation(norm, x, weight);
  const Tensor weights = Raised(norm, Abs(weight));
  return Evaluate(OpKind::kGroupedMatMul, OpAttrs(rl_grouped_matmul_attrs{0, as_stored}),
                  {&largest, &weights, &experts});
}

std::vector<double> GeGluLinearSize(Norm norm, const Site& s) {
  using In = operands::GeGluLinear;
  const auto half = [&](const Tensor& weight) {
    const Tensor& x = s.in(In::x);
    return Half{Evaluate(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}), {&x, &weight}),
                LinearSize(norm, x, weight, 1)};
  };
  return GatedSize(norm, half(s.in(In::gate_weight)), half(s.in(In::up_weight)));
}

std::vector<double> AdaptedLinearSize(Norm norm, const Site& s) {
  using In = operands::AdaptedLinear;
  return AdaptedSize(norm, s.in(In::x), s.in(In::weight), s.in(In::a), s.in(In::b));
}

std::vector<double> AdaptedGeGluLinearSize(Norm norm, const Site& s) {
  using In = operands::AdaptedGeGluLinear;
  const auto half = [&](const Tensor& weight, const Tensor& a, const Tensor& b) {
    const Tensor& x = s.in(In::x);
    return Half{
        Evaluate(OpKind::kAdaptedLinear, OpAttrs(OpKind::kAdaptedLinear), {&x, &weight, &a, &b}),
        AdaptedSize(norm, x, weight, a, b)};
  };
  return GatedSize(norm, half(s.in(In::gate_weight), s.in(In::gate_a), s.in(In::gate_b)),
                   half(s.in(In::up_weight), s.in(In::up_a), s.in(In::up_b)));
}

std::vector<double> AdapterSumSize(Norm norm, const Site& s) {
  using In = operands::AdapterSum;
  const Tensor base = Raised(norm, Abs(s.in(In::base)));
  return AdapterSumSize(norm, base.f, s.in(In::x), AdaptersOf<In>(s, In::a, In::b));
}

std::vector<double> RowAdaptedLinearSize(Norm norm, const Site& s) {
  using In = operands::RowAdaptedLinear;
  return AdapterSumSize(norm, LinearSize(norm, s.in(In::x), s.in(In::weight), 1), s.in(In::x),
                        AdaptersOf<In>(s, In::a, In::b));
}

std::vector<double> RowAdaptedGeGluLinearSize(Norm norm, const Site& s) {
  using In = operands::RowAdaptedGeGluLinear;
  const auto half = [&](size_t weight, size_t a, size_t b) {
    const Tensor& x = s.in(In::x);
    return Half{
        Evaluate(OpKind::kRowAdaptedLinear, OpAttrs(OpKind::kRowAdaptedLinear),
                 {&x, &s.in(weight), &s.in(a), &s.in(b), &s.in(In::ids), &s.in(In::factors)}),
        AdapterSumSize(norm, LinearSize(norm, x, s.in(weight), 1), x, AdaptersOf<In>(s, a, b))};
  };
  return GatedSize(norm, half(In::gate_weight, In::gate_a, In::gate_b),
                   half(In::up_weight, In::up_a, In::up_b));
}

// The rule of geglu_linear, carried through the second product and the weighted sum.
std::vector<double> MoeSize(Norm norm, const Site& s, const Tensor& expected) {
  using In = operands::MoeFfn;
  const int64_t inner = s.in(In::down_weight).dims[2];
  const bool fused = s.op.inputs[In::up_weight] == kNoValue;
  const Half gate = HalfOf(norm, s, In::gate_weight, false, inner);
  const Half up = HalfOf(norm, s, fused ? In::gate_weight : In::up_weight, fused, inner);
  Tensor hidden = reference::MakeZeros(
      DType::kF32, {s.in(In::experts).dims[0], s.in(In::experts).dims[1], inner});
  for (size_t i = 0; i < hidden.f.size(); ++i) {
    hidden.f[i] = Raised(norm, gate.value[i] * up.value[i]) +
                  Raised(norm, kSteepest * up.value[i]) * gate.size[i] +
                  Raised(norm, gate.value[i]) * up.size[i];
    // GroupedSize raises it again.
    if (norm == Norm::kEnergy) hidden.f[i] = std::sqrt(hidden.f[i]);
  }
  const std::vector<double> down =
      GroupedSize(norm, hidden, s.in(In::down_weight), s.in(In::experts));
  const std::vector<double> scales = s.op.inputs[In::expert_scale] == kNoValue
                                         ? std::vector<double>()
                                         : Abs(s.in(In::expert_scale)).f;
  std::vector<double> result(expected.f.size(), 0);
  const auto columns = static_cast<size_t>(expected.last());
  const auto chosen = static_cast<size_t>(s.in(In::experts).last());
  for (size_t i = 0; i < down.size(); ++i) {
    const size_t pair = i / columns;
    const auto expert = static_cast<size_t>(s.in(In::experts).i[pair]);
    const double scale = scales.empty() ? 1 : scales[expert];
    result[pair / chosen * columns + i % columns] +=
        Raised(norm, s.in(In::weights).f[pair] * scale) * down[i];
  }
  return result;
}

// An error e of the logits of a row changes its loss by at most 2 e, and a probability by the
// factor 1 + 2 e, which the second product carries to dx.
std::vector<double> HeadSize(Norm norm, const Site& s, const Tensor& expected) {
  using In = operands::LinearCrossEntropy;
  const Tensor& weight = s.in(In::weight);
  const float cap = s.op.As<rl_linear_cross_entropy_attrs>().cap;
  Tensor logits;
  logits.dims = {s.in(In::x).rows(), weight.dims[0]};
  logits.f = Evaluate(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, 1}), {&s.in(In::x), &weight});
  if (cap > 0) logits.f = Evaluate(OpKind::kSoftcap, OpAttrs(rl_softcap_attrs{0, cap}), {&logits});
  Tensor size = logits;
  size.f = LinearSize(norm, s.in(In::x), weight, 1);
  Tensor grad = logits;
  grad.f = Evaluate(OpKind::kCrossEntropyGrad, OpAttrs(OpKind::kCrossEntropyGrad),
                    {&logits, &s.in(In::targets), &s.in(In::factor)});
  const std::vector<double> of_row = RowMaxima(size);
  const auto n = static_cast<size_t>(logits.last());
  if (expected.dims.size() == 1) {
    std::vector<double> result = expected.f;
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = Raised(norm, result[i]) + Raised(norm, 2) * of_row[i * n];
    }
    return result;
  }
  for (size_t i = 0; i < grad.f.size(); ++i) {
    const double error = norm == Norm::kEnergy ? std::sqrt(of_row[i]) : of_row[i];
    grad.f[i] *= 1 + 2 * error;
  }
  return LinearSize(norm, grad, weight, 0);
}

}  // namespace rullama::conformance

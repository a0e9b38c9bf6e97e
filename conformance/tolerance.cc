#include "conformance/tolerance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "conformance/case.h"
#include "core/reference/evaluate.h"

namespace rullama::conformance {
namespace {

using reference::Interpreter;
using reference::Tensor;

Bounds ContractionBounds(Activations activations) {
  switch (activations) {
    case Activations::kFloat:
      return {1e-10, 1e-5, 1e-6};
    case Activations::kInt16:
      // Two rows of 8 bits: off by 1.6e-5 of the largest in a block at most, so the variance is
      // 8e-11 of its square. All results of a row share these errors, hence five deviations.
      return {2e-9, 3e-5, 1e-6};
    case Activations::kFloat16:
      return {1e-5, 1e-3, 1e-4};
    case Activations::kInt8:
      return {5e-4, 8e-3, 1e-3};  // 1/254 of the largest in a block, twice for safety
  }
  return {};
}

Tensor Abs(const Tensor& tensor) {
  auto plain = reference::Unpack(tensor);
  Tensor result = plain ? *std::move(plain) : Tensor();
  for (double& value : result.f) value = std::abs(value);
  return result;
}

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

std::vector<double> Evaluate(OpKind kind, const OpAttrs& attrs,
                             const std::vector<const Tensor*>& operands) {
  auto results = reference::EvaluateOp(kind, attrs, operands);
  return results ? (*results)[0].f : std::vector<double>();
}

// The norm that combines sizes of terms: the sum of magnitudes bounds the error, that of squares
// estimates the mean square of independent errors.
enum class Norm { kMagnitude, kEnergy };

double Raised(Norm norm, double value) {
  return norm == Norm::kEnergy ? value * value : std::abs(value);
}

Tensor Raised(Norm norm, Tensor tensor) {
  for (double& value : tensor.f) value = Raised(norm, value);
  return tensor;
}

// The activations of a linear layer as errors see them.
Tensor Activation(Norm norm, const Tensor& x, const Tensor& weight) {
  return Raised(norm, IsBlockType(weight.dtype) ? BlockMaxima(x) : Abs(x));
}

// sum |x| |w| of a linear layer, or sum x^2 w^2.
std::vector<double> LinearSize(Norm norm, const Tensor& x, const Tensor& weight, int transposed) {
  const Tensor largest = Activation(norm, x, weight);
  const Tensor weights = Raised(norm, Abs(weight));
  return Evaluate(OpKind::kMatMul, OpAttrs(rl_matmul_attrs{0, transposed}), {&largest, &weights});
}

std::vector<double> GroupedSize(Norm norm, const Tensor& x, const Tensor& weight,
                                const Tensor& experts, int as_stored = 0) {
  const Tensor largest = Activation(norm, x, weight);
  const Tensor weights = Raised(norm, Abs(weight));
  return Evaluate(OpKind::kGroupedMatMul, OpAttrs(rl_grouped_matmul_attrs{0, as_stored}),
                  {&largest, &weights, &experts});
}

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// The largest magnitude of each row of the last dimension.
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

// The op of a case and its operands after the reference ran.
struct Site {
  const Op& op;
  const Interpreter& ran;
  [[nodiscard]] const Tensor& in(size_t i) const { return *ran.Get(op.inputs[i]); }
  // 0 for an absent operand.
  [[nodiscard]] double LargestOf(size_t i) const {
    return op.inputs[i] == kNoValue ? 0 : Largest(Abs(in(i)).f);
  }
};

std::vector<double> BinaryMagnitude(const Site& s) {
  using In = operands::Binary;
  const Tensor a = Abs(s.in(In::a));
  const Tensor b = Abs(s.in(In::b));
  const int32_t fn = s.op.As<rl_binary_attrs>().fn;
  const bool sum = fn == RL_BINARY_ADD || fn == RL_BINARY_SUB;
  return Evaluate(OpKind::kBinary, OpAttrs(rl_binary_attrs{0, sum ? RL_BINARY_ADD : fn}), {&a, &b});
}

std::vector<double> ReduceMagnitude(const Site& s) {
  using In = operands::Reduce;
  const Tensor x = Abs(s.in(In::x));
  return Evaluate(s.op.kind, s.op.attrs, {&x});
}

// gelu(g) u: an error e in g and u becomes gelu'(g) e |u| + |gelu(g)| e, and |gelu'| stays
// below this.
constexpr double kSteepest = 1.13;

// The values of a product and the sizes of their terms.
struct Half {
  std::vector<double> value, size;
};
std::vector<double> GatedSize(Norm norm, const Half& gate, const Half& up) {
  std::vector<double> result = up.size;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = Raised(norm, kSteepest) * gate.size[i] * Raised(norm, up.value[i]) +
                Raised(norm, gate.value[i]) * result[i];
  }
  return result;
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

// A score has the sum of |q| |k|; an error e in it changes a probability by the factor 1 + e.
double ScoreMagnitude(const Tensor& q, double keys, double scale) {
  return static_cast<double>(q.last()) * Largest(q.f) * keys * std::abs(scale);
}

std::vector<double> AttentionMagnitude(const Site& s, size_t count) {
  using In = operands::Attention;
  const double scale = s.op.As<rl_attention_attrs>().scale;
  const double keys = std::max(s.LargestOf(In::k_new), s.LargestOf(In::k_state));
  const double values = std::max(s.LargestOf(In::v_new), s.LargestOf(In::v_state));
  return std::vector<double>(count, values * (1 + ScoreMagnitude(s.in(In::q), keys, scale)));
}

// The scores are sums of two products.
std::vector<double> LocalAttentionMagnitude(const Site& s, size_t count) {
  using In = operands::LocalAttention;
  const double keys = s.LargestOf(In::k) + s.LargestOf(In::rel);
  return std::vector<double>(count,
                             s.LargestOf(In::v) * (1 + ScoreMagnitude(s.in(In::q), keys, 1)));
}

std::vector<double> CausalConvMagnitude(const Site& s) {
  const Tensor x = Abs(s.in(operands::CausalConv1d::x));
  const Tensor weight = Abs(s.in(operands::CausalConv1d::weight));
  return Evaluate(s.op.kind, s.op.attrs, {&x, &weight});
}

// The derivative by a score is p (dy . v - dy . y), and dq, dk and dv are sums of such derivatives
// or of p, times k, q and dy. The p of a query sum to 1, those of a key to the number of queries.
template <typename In>
std::vector<double> AttentionGradMagnitude(const Site& s, double scale, double queries,
                                           size_t count) {
  const Tensor& q = s.in(In::q);
  const double dy = s.LargestOf(In::dy);
  const double by_score = 2 * static_cast<double>(q.last()) * dy * s.LargestOf(In::v_new);
  const double rows = std::max(s.LargestOf(In::k_new), s.LargestOf(In::q));
  const double sum = queries * std::max(dy, by_score * std::abs(scale) * rows);
  const double scores = ScoreMagnitude(q, s.LargestOf(In::k_new), scale);
  return std::vector<double>(count, sum * (1 + scores));
}

// The squares of the elements and of a part of their terms: differences dy . v - dy . y that
// cancel, as with a single key, keep the errors of both.
template <typename In>
std::vector<double> AttentionGradEnergy(const Site& s, double scale, const Tensor& expected) {
  constexpr double kPart = 0.05;
  const double rows = std::max(s.LargestOf(In::k_new), s.LargestOf(In::q));
  const double length = std::sqrt(static_cast<double>(s.in(In::q).last()));
  const double term = kPart * scale * length * s.LargestOf(In::dy) * s.LargestOf(In::v_new) * rows;
  std::vector<double> result = expected.f;
  for (double& value : result) value = value * value + term * term;
  return result;
}

// |g| + |factor| sum |a| |b|; g is the next version.
std::vector<double> GradAccumulateMagnitude(const Site& s) {
  using In = operands::GradAccumulate;
  const Tensor g = Abs(s.in(In::g));
  const Tensor a = Abs(s.in(In::a));
  const Tensor b = Abs(s.in(In::b));
  const float factor = std::abs(s.op.As<rl_grad_accumulate_attrs>().factor);
  return Evaluate(s.op.kind, OpAttrs(rl_grad_accumulate_attrs{0, factor}), {&g, &a, &b});
}

std::vector<double> MixRowsMagnitude(const Site& s) {
  const Tensor p = Abs(s.in(operands::AttentionMixRows::probability));
  const Tensor x = Abs(s.in(operands::AttentionMixRows::x));
  return Evaluate(s.op.kind, s.op.attrs, {&p, &x});
}

// y (dy - sum(y dy)): the magnitudes of the difference.
std::vector<double> SoftmaxGradMagnitude(const Site& s) {
  using In = operands::SoftmaxGrad;
  const Tensor& y = s.in(In::y);
  const auto n = static_cast<size_t>(y.last());
  std::vector<double> result(y.f.size(), 0);
  for (size_t begin = 0; begin < result.size(); begin += n) {
    double sum = 0;
    for (size_t j = begin; j < begin + n; ++j) {
      if (y.f[j] == 0) continue;
      result[j] = std::abs(y.f[j] * s.in(In::dy).f[j]);
      sum += result[j];
    }
    for (size_t j = begin; j < begin + n; ++j) result[j] += std::abs(y.f[j]) * sum;
  }
  return result;
}

// r (g - x r^2 mean(g x)): the magnitudes of the difference, whose second term is at most as large
// as the root mean square of g.
std::vector<double> RmsNormGradMagnitude(const Site& s) {
  using In = operands::RmsNormGrad;
  const Tensor& x = s.in(In::x);
  const double eps = s.op.As<rl_rms_norm_grad_attrs>().eps;
  const bool weighted = s.op.inputs[In::weight] != kNoValue;
  const auto n = static_cast<size_t>(x.last());
  const auto count = static_cast<double>(n);
  std::vector<double> result(x.f.size());
  for (size_t begin = 0; begin < result.size(); begin += n) {
    double squares = 0, products = 0;
    for (size_t j = 0; j < n; ++j) {
      const double weight = weighted ? Abs(s.in(In::weight)).f[j] : 1;
      result[begin + j] = std::abs(s.in(In::dy).f[begin + j]) * weight;
      squares += x.f[begin + j] * x.f[begin + j];
      products += result[begin + j] * std::abs(x.f[begin + j]);
    }
    const double r = 1 / std::sqrt(squares / count + eps);
    for (size_t j = begin; j < begin + n; ++j) {
      result[j] = r * (result[j] + std::abs(x.f[j]) * r * r * products / count);
    }
  }
  return result;
}

// An error of the gate reaches dgate through the slope, which crosses zero, and dup through gelu.
std::vector<double> GeGluGradMagnitude(const Site& s) {
  using In = operands::GeGluGrad;
  std::vector<double> result = Abs(s.in(In::dy)).f;
  for (size_t j = 0; j < result.size(); ++j) {
    result[j] *= kSteepest * std::max(std::abs(s.in(In::up).f[j]), std::abs(s.in(In::gate).f[j]));
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

// "[1, 3, 96] of [7, 8, 128]".
std::string PlaceOf(size_t element, const std::vector<int64_t>& dims) {
  std::vector<size_t> place(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    const auto size = static_cast<size_t>(dims[axis]);
    place[axis] = element % size;
    element /= size;
  }
  return fmt::format("[{}] of [{}]", fmt::join(place, ", "), fmt::join(dims, ", "));
}

std::vector<double> Constant(size_t count, double value) {
  return std::vector<double>(count, value);
}

// A state that an op only reads may have another size than its results.
std::vector<double> ForSizeOf(const Tensor& expected, std::vector<double> sizes,
                              std::vector<double> otherwise) {
  return sizes.size() == expected.f.size() ? sizes : otherwise;
}

std::vector<double> OpMagnitudes(const Site& s, const Tensor& expected) {
  const size_t count = expected.f.size();
  switch (s.op.kind) {
    case OpKind::kMatMul:
      return LinearSize(Norm::kMagnitude, s.in(0), s.in(1),
                        s.op.As<rl_matmul_attrs>().transpose_weight);
    case OpKind::kGeGluLinear:
      return GeGluLinearSize(Norm::kMagnitude, s);
    case OpKind::kAdaptedLinear:
      return AdaptedLinearSize(Norm::kMagnitude, s);
    case OpKind::kAdaptedGeGluLinear:
      return AdaptedGeGluLinearSize(Norm::kMagnitude, s);
    case OpKind::kAdapterSum:
      return AdapterSumSize(Norm::kMagnitude, s);
    case OpKind::kRowAdaptedLinear:
      return RowAdaptedLinearSize(Norm::kMagnitude, s);
    case OpKind::kRowAdaptedGeGluLinear:
      return RowAdaptedGeGluLinearSize(Norm::kMagnitude, s);
    case OpKind::kBinary:
      return BinaryMagnitude(s);
    case OpKind::kReduce:
    case OpKind::kCumSum:
    case OpKind::kMeanRows:
      return ReduceMagnitude(s);
    case OpKind::kAffine:
      return Constant(count, Largest(s.in(0).f) * std::abs(s.op.As<rl_affine_attrs>().scale) +
                                 std::abs(s.op.As<rl_affine_attrs>().bias));
    case OpKind::kAttention:
      return AttentionMagnitude(s, count);
    case OpKind::kCausalConv1d:
      return CausalConvMagnitude(s);
    case OpKind::kLocalAttention:
      return LocalAttentionMagnitude(s, count);
    case OpKind::kAttentionScores:
      return Constant(count, ScoreMagnitude(s.in(0), std::max(s.LargestOf(1), s.LargestOf(2)),
                                            s.op.As<rl_attention_scores_attrs>().scale));
    case OpKind::kAttentionMix:
      return Constant(count, std::max(s.LargestOf(1), s.LargestOf(2)));
    case OpKind::kAttentionStats:
      return Constant(count, ScoreMagnitude(s.in(0), s.LargestOf(1),
                                            s.op.As<rl_attention_stats_attrs>().scale));
    case OpKind::kAttentionGradQ:
      return AttentionGradMagnitude<operands::AttentionGradQ>(
          s, s.op.As<rl_attention_grad_q_attrs>().scale, 1, count);
    case OpKind::kAttentionGradKv:
      return AttentionGradMagnitude<operands::AttentionGradKv>(
          s, s.op.As<rl_attention_grad_kv_attrs>().scale,
          static_cast<double>(s.in(0).rows() * s.in(0).dims[1]) /
              static_cast<double>(s.in(1).dims[1]),
          count);
    case OpKind::kAttentionMixRows:
      return MixRowsMagnitude(s);
    case OpKind::kGradAccumulate:
      return GradAccumulateMagnitude(s);
    case OpKind::kSoftEmbed:
      return Constant(count,
                      Largest(Abs(s.in(2)).f) * (1 + Largest(s.in(0).f) * Largest(s.in(1).f)));
    case OpKind::kSoftmax:
      return Constant(count, 1);
    case OpKind::kCrossEntropyGrad:
      return Constant(count, Largest(s.in(operands::CrossEntropyGrad::factor).f));
    case OpKind::kSoftmaxGrad:
      return SoftmaxGradMagnitude(s);
    case OpKind::kRmsNormGrad:
      return RmsNormGradMagnitude(s);
    case OpKind::kGeGluGrad:
      return GeGluGradMagnitude(s);
    case OpKind::kLinearCrossEntropy:
      return HeadSize(Norm::kMagnitude, s, expected);
    case OpKind::kRope:
    case OpKind::kRotate:
    case OpKind::kResidualNorm:
    case OpKind::kLayerNorm:
    case OpKind::kPleInject:
      return RowMaxima(expected);
    case OpKind::kMoeFfn:
      return MoeSize(Norm::kMagnitude, s, expected);
    case OpKind::kGroupedMatMul:
      return GroupedSize(Norm::kMagnitude, s.in(0), s.in(1), s.in(2),
                         s.op.As<rl_grouped_matmul_attrs>().as_stored);
    default:
      return Abs(expected).f;
  }
}

std::vector<double> OpEnergies(const Site& s, const Tensor& expected) {
  switch (s.op.kind) {
    case OpKind::kMatMul:
      return LinearSize(Norm::kEnergy, s.in(0), s.in(1),
                        s.op.As<rl_matmul_attrs>().transpose_weight);
    case OpKind::kGeGluLinear:
      return GeGluLinearSize(Norm::kEnergy, s);
    case OpKind::kAdaptedLinear:
      return AdaptedLinearSize(Norm::kEnergy, s);
    case OpKind::kAdaptedGeGluLinear:
      return AdaptedGeGluLinearSize(Norm::kEnergy, s);
    case OpKind::kAdapterSum:
      return AdapterSumSize(Norm::kEnergy, s);
    case OpKind::kRowAdaptedLinear:
      return RowAdaptedLinearSize(Norm::kEnergy, s);
    case OpKind::kRowAdaptedGeGluLinear:
      return RowAdaptedGeGluLinearSize(Norm::kEnergy, s);
    case OpKind::kGroupedMatMul:
      return GroupedSize(Norm::kEnergy, s.in(0), s.in(1), s.in(2),
                         s.op.As<rl_grouped_matmul_attrs>().as_stored);
    case OpKind::kMoeFfn:
      return MoeSize(Norm::kEnergy, s, expected);
    case OpKind::kLinearCrossEntropy:
      return HeadSize(Norm::kEnergy, s, expected);
    case OpKind::kSoftEmbed:
      return Constant(expected.f.size(), Raised(Norm::kEnergy, Largest(Abs(s.in(2)).f)));
    case OpKind::kAttentionGradQ:
      return AttentionGradEnergy<operands::AttentionGradQ>(
          s, s.op.As<rl_attention_grad_q_attrs>().scale, expected);
    case OpKind::kAttentionGradKv:
      return AttentionGradEnergy<operands::AttentionGradKv>(
          s, s.op.As<rl_attention_grad_kv_attrs>().scale, expected);
    default:
      return Raised(Norm::kEnergy, expected).f;
  }
}

}  // namespace

Bounds BoundsOf(ToleranceClass tolerance, Activations activations) {
  switch (tolerance) {
    case ToleranceClass::kExact:
      return {};
    case ToleranceClass::kRounding:
      return {1e-12, 1e-5, 1e-6};
    case ToleranceClass::kHalf:
      // A step is 2^-10 of the element; few elements are so near the middle between two.
      return {1e-7, 0x1p-10 + 1e-5, 1e-6};
    case ToleranceClass::kContraction:
      return ContractionBounds(Activations::kFloat);
    case ToleranceClass::kHalfFactors:
      return ContractionBounds(activations == Activations::kFloat16 ? activations
                                                                    : Activations::kFloat);
    case ToleranceClass::kBlocks:
      return ContractionBounds(activations);
    case ToleranceClass::kComposite: {
      // The second product of a chain amplifies what the first one lost, relative to a smaller
      // result.
      constexpr double kAmplification = 8;
      const Bounds blocks = ContractionBounds(activations);
      return {blocks.nmse * kAmplification * kAmplification, blocks.relative * kAmplification,
              blocks.absolute * kAmplification};
    }
  }
  return {};
}

std::vector<double> Magnitudes(const Case& test, const Interpreter& ran, const Tensor& expected) {
  if (test.graph.ops.size() != 1) return RowMaxima(expected);
  return ForSizeOf(expected, OpMagnitudes({test.graph.ops[0], ran}, expected), Abs(expected).f);
}

std::vector<double> Energies(const Case& test, const Interpreter& ran, const Tensor& expected) {
  std::vector<double> squares = Raised(Norm::kEnergy, expected).f;
  if (test.graph.ops.size() != 1) return squares;
  return ForSizeOf(expected, OpEnergies({test.graph.ops[0], ran}, expected), std::move(squares));
}

std::string Compare(const Tensor& expected, const Tensor& actual,
                    std::span<const double> magnitudes, std::span<const double> energies,
                    const Bounds& bounds) {
  size_t bad = 0;
  std::string first;
  const auto complain = [&](size_t at, auto found, auto wanted, double allowed) {
    if (bad++ == 0) {
      first = fmt::format("element {} is {}, expected {} (allowed difference {:.3g})",
                          PlaceOf(at, expected.dims), found, wanted, allowed);
    }
  };
  for (size_t j = 0; j < expected.i.size(); ++j) {
    if (expected.i[j] != actual.i[j]) complain(j, actual.i[j], expected.i[j], 0);
  }
  double error = 0, energy = 0;
  for (size_t j = 0; j < expected.f.size(); ++j) {
    const double e = expected.f[j], a = actual.f[j];
    if (!std::isfinite(e) || !std::isfinite(a)) {
      if (!(std::isnan(e) && std::isnan(a)) && e != a) complain(j, a, e, 0);
      continue;
    }
    const double allowed =
        bounds.relative == 0 ? 0 : bounds.absolute + bounds.relative * magnitudes[j];
    if (std::abs(a - e) > allowed) complain(j, a, e, allowed);
    error += (a - e) * (a - e);
    energy += energies[j];
  }
  if (bad > 0) {
    const size_t count = expected.i.size() + expected.f.size();
    return fmt::format("{}; {} of {} elements are off", first, bad, count);
  }
  // Cancellation may leave one of a few elements small compared with its terms. The bound above,
  // which knows the terms, has already judged it.
  constexpr size_t kEnoughForNmse = 16;
  if (expected.f.size() < kEnoughForNmse) return {};
  // Below the absolute bound everything is rounding of zero.
  const double floor = bounds.absolute * bounds.absolute * static_cast<double>(expected.f.size());
  if (error > bounds.nmse * energy + floor) {
    return fmt::format("NMSE is {:.3g}, allowed {:.3g}", error / std::max(energy, 1e-300),
                       bounds.nmse);
  }
  return {};
}

}  // namespace rullama::conformance

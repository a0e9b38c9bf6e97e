// The magnitudes and energies of each op, which its errors are relative to.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "conformance/case.h"
#include "conformance/op_sizes.h"
#include "conformance/tolerance.h"
#include "core/reference/evaluate.h"

namespace rullama::conformance {
namespace {

using reference::Interpreter;
using reference::Tensor;

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

std::vector<double> Magnitudes(const Case& test, const Interpreter& ran, const Tensor& expected) {
  if (test.graph.ops.size() != 1) return RowMaxima(expected);
  return ForSizeOf(expected, OpMagnitudes({test.graph.ops[0], ran}, expected), Abs(expected).f);
}

std::vector<double> Energies(const Case& test, const Interpreter& ran, const Tensor& expected) {
  std::vector<double> squares = Raised(Norm::kEnergy, expected).f;
  if (test.graph.ops.size() != 1) return squares;
  return ForSizeOf(expected, OpEnergies({test.graph.ops[0], ran}, expected), std::move(squares));
}

}  // namespace rullama::conformance

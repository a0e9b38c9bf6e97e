// Decompositions of softmax, rms_norm, softcap and residual_norm.
#include "core/passes/decompositions.h"

namespace rullama::decompositions {

// exp(x - max) / sum, and zeros for a row of only -inf, of which (-inf) - (-inf) would make NaN.
// Such a row is found without relying on NaN, whose comparisons some shader compilers get wrong:
// its maximum is the one number with m = 2m and m < -1. It is replaced by 0, so that every exp
// gives 0, and 1 is added to the sum.
ValueId Softmax(const Site& s) {
  GraphBuilder& b = s.b;
  const ValueId x = s.in[0];
  const ValueId max = b.Reduce(x, RL_REDUCE_MAX, s.Part("max"));
  const ValueId twice = b.Affine(max, 2, 0, s.Part("twice"));
  const ValueId is_fixed = b.Binary(max, twice, RL_BINARY_EQ, s.Part("is_fixed"));
  const ValueId limit = b.Affine(is_fixed, -1, 0, s.Part("limit"));  // -1 where m = 2m
  const ValueId is_below = b.Binary(max, limit, RL_BINARY_LT, s.Part("is_below"));
  const ValueId is_empty = b.Mul(is_fixed, is_below, s.Part("is_empty"));
  const ValueId is_not_empty = b.Affine(is_empty, -1, 1, s.Part("is_not_empty"));
  const ValueId offset = b.Select(is_not_empty, max, 0, s.Part("offset"));
  const ValueId shifted = b.Binary(x, offset, RL_BINARY_SUB, s.Part("shifted"));
  const ValueId exp = b.Unary(shifted, RL_UNARY_EXP, s.Part("exp"));
  const ValueId sum = b.Reduce(exp, RL_REDUCE_SUM, s.Part("sum"));
  const ValueId divisor = b.Add(sum, is_empty, s.Part("divisor"));
  return b.Binary(exp, divisor, RL_BINARY_DIV, s.name);
}

ValueId RmsNorm(const Site& s) {
  GraphBuilder& b = s.b;
  const ValueId weight = s.in[1];
  const ValueId square = b.Unary(s.in[0], RL_UNARY_SQUARE, s.Part("square"));
  const ValueId mean = b.Reduce(square, RL_REDUCE_MEAN, s.Part("mean"));
  const ValueId shifted = b.Affine(mean, 1, s.op.As<rl_rms_norm_attrs>().eps, s.Part("mean_eps"));
  const ValueId rsqrt = b.Unary(shifted, RL_UNARY_RSQRT, s.Part("rsqrt"));
  const ValueId y = b.Mul(s.in[0], rsqrt, weight == kNoValue ? s.name : s.Part("normed"));
  return weight == kNoValue ? y : b.Scale(y, weight, s.name);
}

ValueId Softcap(const Site& s) {
  GraphBuilder& b = s.b;
  const float cap = s.op.As<rl_softcap_attrs>().cap;
  const ValueId scaled = b.Affine(s.in[0], 1.0F / cap, 0, s.Part("scaled"));
  return b.Affine(b.Unary(scaled, RL_UNARY_TANH, s.Part("tanh")), cap, 0, s.name);
}

ValueId ResidualNorm(const Site& s) {
  GraphBuilder& b = s.b;
  const ValueId scale = s.in[3];
  const float eps = s.op.As<rl_residual_norm_attrs>().eps;
  const ValueId normed = b.RmsNorm(s.in[1], s.in[2], eps, s.Part("norm"));
  const ValueId sum = b.Add(s.in[0], normed, scale == kNoValue ? s.name : s.Part("sum"));
  return scale == kNoValue ? sum : b.Scale(sum, scale, s.name);
}

}  // namespace rullama::decompositions

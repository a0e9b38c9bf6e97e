// Decompositions of softmax, rms_norm, layer_norm, softcap and residual_norm, and of the mean of
// rows.
#include <fmt/format.h>

#include "core/passes/decompositions.h"

namespace rullama::decompositions {

// (-inf) - (-inf) is NaN. A row of only -inf is detected without comparisons of NaN, which some
// shader compilers get wrong: its maximum is the only number with m = 2m and m < -1. The maximum is
// replaced by 0, so that every exp is 0, and 1 is added to the sum.
Exponentials AddExponentials(const Site& s, ValueId x) {
  GraphBuilder& b = s.b;
  const ValueId max = b.Add(ops::Reduce{.x = x, .fn = RL_REDUCE_MAX}, s.Part("max"));
  const ValueId twice = b.Add(ops::Affine{.x = max, .scale = 2, .bias = 0}, s.Part("twice"));
  const ValueId is_fixed =
      b.Add(ops::Binary{.a = max, .b = twice, .fn = RL_BINARY_EQ}, s.Part("is_fixed"));
  const ValueId limit = b.Add(ops::Affine{.x = is_fixed, .scale = -1, .bias = 0},
                              s.Part("limit"));  // -1 where m = 2m
  const ValueId is_below =
      b.Add(ops::Binary{.a = max, .b = limit, .fn = RL_BINARY_LT}, s.Part("is_below"));
  const ValueId is_empty = b.Add(ops::Product(is_fixed, is_below), s.Part("is_empty"));
  const ValueId is_not_empty =
      b.Add(ops::Affine{.x = is_empty, .scale = -1, .bias = 1}, s.Part("is_not_empty"));
  const ValueId offset =
      b.Add(ops::Select{.condition = is_not_empty, .a = max, .otherwise = 0}, s.Part("offset"));
  const ValueId shifted =
      b.Add(ops::Binary{.a = x, .b = offset, .fn = RL_BINARY_SUB}, s.Part("shifted"));
  const ValueId exp = b.Add(ops::Unary{.x = shifted, .fn = RL_UNARY_EXP}, s.Part("exp"));
  const ValueId sum = b.Add(ops::Reduce{.x = exp, .fn = RL_REDUCE_SUM}, s.Part("sum"));
  return {offset, exp, b.Add(ops::Sum(sum, is_empty), s.Part("divisor"))};
}

ValueId Softmax(const Site& s, const ops::Softmax& op) {
  const Exponentials e = AddExponentials(s, op.x);
  return s.b.Add(ops::Binary{.a = e.exp, .b = e.divisor, .fn = RL_BINARY_DIV}, s.name);
}

ValueId RmsNorm(const Site& s, const ops::RmsNorm& op) {
  GraphBuilder& b = s.b;
  const ValueId square = b.Add(ops::Unary{.x = op.x, .fn = RL_UNARY_SQUARE}, s.Part("square"));
  const ValueId mean = b.Add(ops::Reduce{.x = square, .fn = RL_REDUCE_MEAN}, s.Part("mean"));
  const ValueId shifted =
      b.Add(ops::Affine{.x = mean, .scale = 1, .bias = op.eps}, s.Part("mean_eps"));
  const ValueId rsqrt = b.Add(ops::Unary{.x = shifted, .fn = RL_UNARY_RSQRT}, s.Part("rsqrt"));
  const ValueId y =
      b.Add(ops::Product(op.x, rsqrt), op.weight == kNoValue ? s.name : s.Part("normed"));
  return op.weight == kNoValue ? y : b.Add(ops::Scale{.x = y, .weight = op.weight}, s.name);
}

// The norm of x - mean(x), whose mean square is the variance of x.
ValueId LayerNorm(const Site& s, const ops::LayerNorm& op) {
  GraphBuilder& b = s.b;
  // Without a bias the RMS norm has the name of the whole, and parts called "mean" and the like.
  const ValueId centre = b.Add(ops::Reduce{.x = op.x, .fn = RL_REDUCE_MEAN}, s.Part("centre"));
  const ValueId centred =
      b.Add(ops::Binary{.a = op.x, .b = centre, .fn = RL_BINARY_SUB}, s.Part("centred"));
  const ValueId normed = b.Add(ops::RmsNorm{.x = centred, .weight = op.weight, .eps = op.eps},
                               op.bias == kNoValue ? s.name : s.Part("normed"));
  return op.bias == kNoValue ? normed
                             : b.Add(ops::AddVector{.x = normed, .vector = op.bias}, s.name);
}

// The rows of a group side by side, summed in their order.
ValueId MeanRows(const Site& s, const ops::MeanRows& op) {
  GraphBuilder& b = s.b;
  const ValueId folded = b.Add(ops::FoldRows{.x = op.x, .group = op.group}, s.Part("folded"));
  if (!b.ok()) return kNoValue;
  const int64_t n = b.graph().type(op.x).last().constant;
  const auto row = [&](int64_t i) {
    return b.Add(ops::Slice{.x = folded, .axis = 1, .start = i * n, .size = n},
                 s.Part(fmt::format("row{}", i).c_str()));
  };
  ValueId sum = row(0);
  for (int64_t i = 1; i < op.group; ++i) {
    sum = b.Add(ops::Sum(sum, row(i)), s.Part(fmt::format("sum{}", i).c_str()));
  }
  return b.Add(ops::Affine{.x = sum, .scale = 1.0F / static_cast<float>(op.group), .bias = 0},
               s.name);
}

ValueId Softcap(const Site& s, const ops::Softcap& op) {
  GraphBuilder& b = s.b;
  const ValueId scaled =
      b.Add(ops::Affine{.x = op.x, .scale = 1.0F / op.cap, .bias = 0}, s.Part("scaled"));
  return b.Add(ops::Affine{.x = b.Add(ops::Unary{.x = scaled, .fn = RL_UNARY_TANH}, s.Part("tanh")),
                           .scale = op.cap,
                           .bias = 0},
               s.name);
}

ValueId ResidualNorm(const Site& s, const ops::ResidualNorm& op) {
  GraphBuilder& b = s.b;
  const ValueId normed =
      b.Add(ops::RmsNorm{.x = op.x, .weight = op.weight, .eps = op.eps}, s.Part("norm"));
  const ValueId sum =
      b.Add(ops::Sum(op.residual, normed), op.scale == kNoValue ? s.name : s.Part("sum"));
  return op.scale == kNoValue ? sum : b.Add(ops::Scale{.x = sum, .weight = op.scale}, s.name);
}

}  // namespace rullama::decompositions

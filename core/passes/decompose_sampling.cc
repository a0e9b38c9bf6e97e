// Decompositions of what samplers ask of probabilities.
#include <cmath>
#include <limits>

#include "core/passes/decompositions.h"

namespace rullama::decompositions {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// The sampling ops read NaN as -inf, so that one bad logit does not take the row with it.
ValueId Ordered(const Site& s, const std::string& name) {
  const ValueId is_number = s.b.Binary(s.in[0], s.in[0], RL_BINARY_EQ, s.Part("is_number"));
  return s.b.Select(is_number, s.in[0], kBanned, name);
}

}  // namespace

// The mass before a column is the running sum shifted by one column, not the sum minus the column's
// own mass: subtracting would round differently from adding up. p = 1 keeps everything, whatever
// the sum rounds to.
ValueId TopPMask(const Site& s) {
  GraphBuilder& b = s.b;
  const float p = s.op.As<rl_top_p_mask_attrs>().p;
  if (p >= 1) return Ordered(s, s.name);
  const ValueId x = Ordered(s, s.Part("ordered"));
  const ValueId probability = b.Softmax(x, s.Part("probability"));
  const ValueId mass = b.CumSum(probability, s.Part("mass"));
  if (!b.ok()) return kNoValue;
  const int64_t columns = b.graph().type(x).last().constant;
  const ValueId first = b.Slice(mass, 1, 0, 1, s.Part("first"));
  const ValueId zero = b.Affine(first, 0, 0, s.Part("zero"));
  ValueId before = zero;
  if (columns > 1) {
    const ValueId others = b.Slice(mass, 1, 0, columns - 1, s.Part("others"));
    before = b.Concat(zero, others, 1, s.Part("before"));
  }
  const ValueId limit = b.Affine(zero, 1, p, s.Part("limit"));
  const ValueId kept = b.Binary(before, limit, RL_BINARY_LT, s.Part("kept"));
  return b.Select(kept, x, kBanned, s.name);
}

// x >= max + ln(p), written as -x <= -(max + ln(p)): only the second operand broadcasts.
ValueId MinPMask(const Site& s) {
  GraphBuilder& b = s.b;
  const float log_p = std::log(s.op.As<rl_min_p_mask_attrs>().p);
  const ValueId x = Ordered(s, s.Part("ordered"));
  const ValueId max = b.Reduce(x, RL_REDUCE_MAX, s.Part("max"));
  const ValueId limit = b.Affine(max, -1, -log_p, s.Part("limit"));
  const ValueId negated = b.Unary(x, RL_UNARY_NEG, s.Part("neg"));
  const ValueId kept = b.Binary(negated, limit, RL_BINARY_LE, s.Part("kept"));
  return b.Select(kept, x, kBanned, s.name);
}

// A probability of 0 would give 0 * -inf; its term is left out.
ValueId Entropy(const Site& s) {
  GraphBuilder& b = s.b;
  const ValueId p = b.Softmax(s.in[0], s.Part("probability"));
  const ValueId log = b.Unary(p, RL_UNARY_LOG, s.Part("log"));
  const ValueId term = b.Select(p, b.Mul(p, log, s.Part("product")), 0, s.Part("term"));
  const ValueId sum = b.Reduce(term, RL_REDUCE_SUM, s.Part("sum"));
  return b.Reshape(b.Affine(sum, -1, 0, s.Part("negated")), {}, s.name);
}

ValueId SoftEmbed(const Site& s) {
  GraphBuilder& b = s.b;
  const ValueId scaled = b.Scale(s.in[0], s.in[1], s.Part("scaled"));
  const ValueId p = b.Softmax(scaled, s.Part("probability"));
  return b.MatMul(p, s.in[2], s.name, /*transpose_weight=*/false);
}

}  // namespace rullama::decompositions

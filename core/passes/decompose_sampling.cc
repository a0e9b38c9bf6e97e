// Decompositions of the sampling masks and the entropy.
#include <cmath>
#include <limits>

#include "core/passes/decompositions.h"

namespace rullama::decompositions {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// The sampling ops read NaN as -inf, so that one bad logit does not spoil the row.
ValueId Ordered(const Site& s, ValueId x, const std::string& name) {
  const ValueId is_number =
      s.b.Add(ops::Binary{.a = x, .b = x, .fn = RL_BINARY_EQ}, s.Part("is_number"));
  return s.b.Add(ops::Select{.condition = is_number, .a = x, .otherwise = kBanned}, name);
}

}  // namespace

// The mass before a column is the running sum shifted by one column. Subtracting the column's mass
// from the running sum would round differently. p = 1 keeps every column, however the sum rounds.
ValueId TopPMask(const Site& s, const ops::TopPMask& op) {
  GraphBuilder& b = s.b;
  const float p = op.p;
  if (p >= 1) return Ordered(s, op.x, s.name);
  const ValueId x = Ordered(s, op.x, s.Part("ordered"));
  const ValueId probability = b.Add(ops::Softmax{x}, s.Part("probability"));
  const ValueId mass = b.Add(ops::CumSum{probability}, s.Part("mass"));
  if (!b.ok()) return kNoValue;
  const int64_t columns = b.graph().type(x).last().constant;
  const ValueId first =
      b.Add(ops::Slice{.x = mass, .axis = 1, .start = 0, .size = 1}, s.Part("first"));
  const ValueId zero = b.Add(ops::Affine{.x = first, .scale = 0, .bias = 0}, s.Part("zero"));
  ValueId before = zero;
  if (columns > 1) {
    const ValueId others =
        b.Add(ops::Slice{.x = mass, .axis = 1, .start = 0, .size = columns - 1}, s.Part("others"));
    before = b.Add(ops::Concat{.a = zero, .b = others, .axis = 1}, s.Part("before"));
  }
  const ValueId limit = b.Add(ops::Affine{.x = zero, .scale = 1, .bias = p}, s.Part("limit"));
  const ValueId kept =
      b.Add(ops::Binary{.a = before, .b = limit, .fn = RL_BINARY_LT}, s.Part("kept"));
  return b.Add(ops::Select{.condition = kept, .a = x, .otherwise = kBanned}, s.name);
}

// x >= max + ln(p), written as -x <= -(max + ln(p)), because only the second operand broadcasts.
ValueId MinPMask(const Site& s, const ops::MinPMask& op) {
  GraphBuilder& b = s.b;
  const float log_p = std::log(op.p);
  const ValueId x = Ordered(s, op.x, s.Part("ordered"));
  const ValueId max = b.Add(ops::Reduce{.x = x, .fn = RL_REDUCE_MAX}, s.Part("max"));
  const ValueId limit = b.Add(ops::Affine{.x = max, .scale = -1, .bias = -log_p}, s.Part("limit"));
  const ValueId negated = b.Add(ops::Unary{.x = x, .fn = RL_UNARY_NEG}, s.Part("neg"));
  const ValueId kept =
      b.Add(ops::Binary{.a = negated, .b = limit, .fn = RL_BINARY_LE}, s.Part("kept"));
  return b.Add(ops::Select{.condition = kept, .a = x, .otherwise = kBanned}, s.name);
}

// Terms with a probability of 0 are left out, since 0 * -inf is NaN.
ValueId Entropy(const Site& s, const ops::Entropy& op) {
  GraphBuilder& b = s.b;
  const ValueId p = b.Add(ops::Softmax{op.x}, s.Part("probability"));
  const ValueId log = b.Add(ops::Unary{.x = p, .fn = RL_UNARY_LOG}, s.Part("log"));
  const ValueId term = b.Add(
      ops::Select{
          .condition = p, .a = b.Add(ops::Product(p, log), s.Part("product")), .otherwise = 0},
      s.Part("term"));
  const ValueId sum = b.Add(ops::Reduce{.x = term, .fn = RL_REDUCE_SUM}, s.Part("sum"));
  return b.Add(
      ops::ReshapeTo(b.Add(ops::Affine{.x = sum, .scale = -1, .bias = 0}, s.Part("negated")), {}),
      s.name);
}

ValueId SoftEmbed(const Site& s, const ops::SoftEmbed& op) {
  GraphBuilder& b = s.b;
  const ValueId scaled =
      b.Add(ops::Scale{.x = op.logits, .weight = op.inverse_temperature}, s.Part("scaled"));
  const ValueId p = b.Add(ops::Softmax{scaled}, s.Part("probability"));
  return b.Add(ops::MatMul{.x = p, .weight = op.table}, s.name);
}

}  // namespace rullama::decompositions

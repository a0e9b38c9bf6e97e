// Decompositions of attention and of its derivatives.
#include "core/passes/decompositions.h"

namespace rullama::decompositions {
namespace {

// The scores of `op`, which is attention over fresh rows or a derivative of it. Another product
// with the same mask has other operands and another scale.
template <typename Op>
ops::AttentionScores ScoresOf(const Op& op) {
  return {.q = op.q,
          .k_new = op.k_new,
          .q_pos = op.q_pos,
          .q_slot = op.q_slot,
          .kv_pos = op.kv_pos,
          .kv_slot = op.kv_slot,
          .mask = op.mask,
          .window = op.window,
          .scale = op.scale};
}

// The probabilities of attention and the derivative by its scores before they are scaled.
struct Gradients {
  ValueId probability;
  ValueId scores;
};

template <typename Op>
Gradients GradientsOf(const Site& s, const Op& op) {
  GraphBuilder& b = s.b;
  const ValueId probability =
      b.Add(ops::Softmax{b.Add(ScoresOf(op), s.Part("scores"))}, s.Part("probability"));
  ops::AttentionScores products = ScoresOf(op);
  products.q = op.dy;
  products.k_new = op.v_new;
  products.scale = 1;
  const ValueId by_probability = b.Add(products, s.Part("by_probability"));
  const ValueId mean = b.Add(
      ops::Reduce{b.Add(ops::Product(op.dy, op.y), s.Part("dy_y")), RL_REDUCE_SUM}, s.Part("mean"));
  // The products are -inf where a key is invisible. Its probability is 0, and so is its share.
  const ValueId difference =
      b.Add(ops::Binary{.a = by_probability, .b = mean, .fn = RL_BINARY_SUB}, s.Part("difference"));
  const ValueId visible = b.Add(
      ops::Select{.condition = probability, .a = difference, .otherwise = 0}, s.Part("visible"));
  const ValueId unscaled = b.Add(ops::Product(probability, visible), s.Part("unscaled"));
  return {probability,
          b.Add(ops::Affine{.x = unscaled, .scale = op.scale, .bias = 0}, s.Part("by_scores"))};
}

}  // namespace

ValueId Attention(const Site& s, const ops::Attention& op) {
  GraphBuilder& b = s.b;
  ops::AttentionScores scores = ScoresOf(op);
  scores.k_state = op.k_state;
  scores.past = op.past;
  scores.q_end = op.q_end;
  const ValueId probability =
      b.Add(ops::Softmax{b.Add(scores, s.Part("scores"))}, s.Part("probability"));
  const ops::AttentionMix mix{
      .probability = probability, .v_new = op.v_new, .v_state = op.v_state, .q_slot = op.q_slot};
  return b.Add(mix, s.name);
}

ValueId AttentionStats(const Site& s, const ops::AttentionStats& op) {
  GraphBuilder& b = s.b;
  const ValueId scores = b.Add(ScoresOf(op), s.Part("scores"));
  if (!b.ok()) return kNoValue;
  const TensorType& q = b.graph().type(op.q);
  const int64_t heads = q.dim(1).constant;
  // The largest probability is exp(largest score - lse), and 0 where no key is visible.
  const ValueId largest = b.Add(ops::Reduce{scores, RL_REDUCE_MAX}, s.Part("largest"));
  const ValueId probability = b.Add(
      ops::Reduce{b.Add(ops::Softmax{scores}, s.Part("softmax")), RL_REDUCE_MAX}, s.Part("peak"));
  const ValueId log = b.Add(ops::Unary{.x = probability, .fn = RL_UNARY_LOG}, s.Part("log"));
  const ValueId difference =
      b.Add(ops::Binary{.a = largest, .b = log, .fn = RL_BINARY_SUB}, s.Part("difference"));
  const ValueId lse =
      b.Add(ops::Select{.condition = probability, .a = difference, .otherwise = 0}, s.Part("lse"));
  return b.Add(ops::ReshapeTo(lse, {heads}), s.name);
}

ValueId AttentionGradQ(const Site& s, const ops::AttentionGradQ& op) {
  const Gradients gradients = GradientsOf(s, op);
  return s.b.Add(
      ops::AttentionMix{.probability = gradients.scores, .v_new = op.k_new, .q_slot = op.q_slot},
      s.name);
}

ops::AttentionGradKv::Results AttentionGradKv(const Site& s, const ops::AttentionGradKv& op) {
  const Gradients gradients = GradientsOf(s, op);
  if (!s.b.ok()) return {};
  const int64_t kv_heads = s.b.graph().type(op.k_new).dim(1).constant;
  const auto mix = [&](ValueId probability, ValueId x, const std::string& name) {
    return s.b.Add(ops::AttentionMixRows{.probability = probability, .x = x, .kv_heads = kv_heads},
                   name);
  };
  return {.dk = mix(gradients.scores, op.q, s.names[0]),
          .dv = mix(gradients.probability, op.dy, s.names[1])};
}

}  // namespace rullama::decompositions

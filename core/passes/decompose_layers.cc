// Decompositions of attention, the gated activation and the per-layer embedding.
#include "core/passes/decompositions.h"

namespace rullama::decompositions {

ValueId GeGlu(const Site& s) {
  const ValueId gate = s.b.Unary(s.in[0], RL_UNARY_GELU_TANH, s.Part("gelu"));
  return s.b.Mul(gate, s.in[1], s.name);
}

ValueId GeGluLinear(const Site& s) {
  const ValueId gate = s.b.MatMul(s.in[0], s.in[1], s.Part("gate"));
  const ValueId up = s.b.MatMul(s.in[0], s.in[2], s.Part("up"));
  return s.b.GeGlu(gate, up, s.name);
}

ValueId PleInject(const Site& s) {
  GraphBuilder& b = s.b;
  const float eps = s.op.As<rl_ple_inject_attrs>().eps;
  const ValueId gate = b.MatMul(s.in[0], s.in[2], s.Part("gate"));
  const ValueId gated = b.GeGlu(gate, s.in[1], s.Part("gated"));
  const ValueId projected = b.MatMul(gated, s.in[3], s.Part("proj"));
  return b.ResidualNorm(s.in[0], projected, s.in[4], s.in[5], eps, s.name);
}

ValueId Attention(const Site& s) {
  enum : size_t { kQ, kKNew, kVNew, kKState, kVState, kQPos, kQSlot, kKvPos, kKvSlot, kPast };
  GraphBuilder& b = s.b;
  const auto& a = s.op.As<rl_attention_attrs>();
  const ValueId scores =
      b.Add(OpKind::kAttentionScores,
            {s.in[kQ], s.in[kKNew], s.in[kKState], s.in[kQPos], s.in[kQSlot], s.in[kKvPos],
             s.in[kKvSlot], s.in[kPast]},
            OpAttrs(rl_attention_scores_attrs{0, a.mask, a.window, a.scale}), s.Part("scores"))[0];
  const ValueId probability = b.Softmax(scores, s.Part("probability"));
  return b.Add(OpKind::kAttentionMix, {probability, s.in[kVNew], s.in[kVState], s.in[kQSlot]},
               OpAttrs(OpKind::kAttentionMix), s.name)[0];
}

}  // namespace rullama::decompositions

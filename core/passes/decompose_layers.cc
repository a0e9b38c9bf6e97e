// Decompositions of the gated activation, products with an adapter and the per-layer embedding.
#include "core/passes/decompositions.h"

namespace rullama::decompositions {

ValueId GeGlu(const Site& s, const ops::GeGlu& op) {
  const ValueId gate = s.b.Add(ops::Unary{.x = op.gate, .fn = RL_UNARY_GELU_TANH}, s.Part("gelu"));
  return s.b.Add(ops::Product(gate, op.up), s.name);
}

ValueId GeGluLinear(const Site& s, const ops::GeGluLinear& op) {
  const ValueId gate = s.b.Add(ops::Linear(op.x, op.gate_weight), s.Part("gate"));
  const ValueId up = s.b.Add(ops::Linear(op.x, op.up_weight), s.Part("up"));
  return s.b.Add(ops::GeGlu{.gate = gate, .up = up}, s.name);
}

ValueId AdaptedLinear(const Site& s, const ops::AdaptedLinear& op) {
  const ValueId base = s.b.Add(ops::Linear(op.x, op.weight), s.Part("base"));
  const ValueId inner = s.b.Add(ops::Linear(op.x, op.a), s.Part("lora.a"));
  const ValueId change = s.b.Add(ops::Linear(inner, op.b), s.Part("lora.b"));
  return s.b.Add(ops::Sum(base, change), s.name);
}

ValueId AdaptedGeGluLinear(const Site& s, const ops::AdaptedGeGluLinear& op) {
  const ValueId gate = s.b.Add(
      ops::AdaptedLinear{.x = op.x, .weight = op.gate_weight, .a = op.gate_a, .b = op.gate_b},
      s.Part("gate"));
  const ValueId up =
      s.b.Add(ops::AdaptedLinear{.x = op.x, .weight = op.up_weight, .a = op.up_a, .b = op.up_b},
              s.Part("up"));
  return s.b.Add(ops::GeGlu{.gate = gate, .up = up}, s.name);
}

ValueId PleInject(const Site& s, const ops::PleInject& op) {
  GraphBuilder& b = s.b;
  const ValueId gate = b.Add(ops::Linear(op.x, op.gate_weight), s.Part("gate"));
  const ValueId gated = b.Add(ops::GeGlu{.gate = gate, .up = op.ple}, s.Part("gated"));
  const ValueId projected = b.Add(ops::Linear(gated, op.proj_weight), s.Part("proj"));
  return b.Add(ops::ResidualNorm{.residual = op.x,
                                 .x = projected,
                                 .weight = op.norm_weight,
                                 .scale = op.scale,
                                 .eps = op.eps},
               s.name);
}

}  // namespace rullama::decompositions

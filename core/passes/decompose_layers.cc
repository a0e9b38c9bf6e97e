// Decompositions of the gated activation, products with adapters and the per-layer embedding.
#include <fmt/format.h>

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

namespace {

// `base` and the changes of each place [rows, places, n], one after another: reduce sums along the
// last dimension only.
ValueId SumOfPlaces(const Site& s, ValueId base, ValueId changes, int64_t places) {
  GraphBuilder& b = s.b;
  if (!b.ok()) return kNoValue;
  const int64_t width = b.graph().type(base).last().constant;
  ValueId sum = base;
  for (int64_t place = 0; place < places; ++place) {
    const auto part = [&](const char* name) { return s.name + fmt::format("/{}{}", name, place); };
    const ValueId one =
        places == 1
            ? changes
            : b.Add(ops::Slice{.x = changes, .axis = 1, .start = place, .size = 1}, part("place"));
    const ValueId row = b.Add(ops::ReshapeTo(one, {width}), part("row"));
    sum = b.Add(ops::Sum(sum, row), place + 1 == places ? s.name : part("sum"));
  }
  return sum;
}

}  // namespace

ValueId AdapterSum(const Site& s, const ops::AdapterSum& op) {
  GraphBuilder& b = s.b;
  const int64_t places = b.graph().type(op.ids).dim(1).constant;
  const ValueId inner =
      b.Add(ops::GroupedMatMul{.x = op.x, .weight = op.a, .experts = op.ids}, s.Part("lora.a"));
  const ValueId factors = b.Add(ops::ReshapeTo(op.factors, {places, 1}), s.Part("factors"));
  const ValueId weighted = b.Add(ops::Product(inner, factors), s.Part("weighted"));
  const ValueId changes =
      b.Add(ops::GroupedMatMul{.x = weighted, .weight = op.b, .experts = op.ids}, s.Part("lora.b"));
  return SumOfPlaces(s, op.base, changes, places);
}

ValueId RowAdaptedLinear(const Site& s, const ops::RowAdaptedLinear& op) {
  return s.b.Add(ops::AdapterSum{.x = op.x,
                                 .base = s.b.Add(ops::Linear(op.x, op.weight), s.Part("base")),
                                 .a = op.a,
                                 .b = op.b,
                                 .ids = op.ids,
                                 .factors = op.factors},
                 s.name);
}

ValueId RowAdaptedGeGluLinear(const Site& s, const ops::RowAdaptedGeGluLinear& op) {
  const auto half = [&](ValueId weight, ValueId a, ValueId b, const char* part) {
    return s.b.Add(
        ops::RowAdaptedLinear{
            .x = op.x, .weight = weight, .a = a, .b = b, .ids = op.ids, .factors = op.factors},
        s.Part(part));
  };
  const ValueId gate = half(op.gate_weight, op.gate_a, op.gate_b, "gate");
  const ValueId up = half(op.up_weight, op.up_a, op.up_b, "up");
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

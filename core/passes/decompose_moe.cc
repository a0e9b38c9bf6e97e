// The decomposition of the mixture of experts.
#include <fmt/format.h>

#include "core/passes/decompositions.h"

namespace rullama::decompositions {
namespace {

// The expert_scale of each chosen expert, f32[rows, k], by one gather per column of `experts`.
ValueId ChosenScales(const Site& s, ValueId scale, ValueId experts, int64_t k) {
  GraphBuilder& b = s.b;
  ValueId all = kNoValue;
  for (int64_t j = 0; j < k; ++j) {
    const auto part = [&](const char* name) { return s.name + fmt::format("/{}{}", name, j); };
    const ValueId column = b.Add(
        ops::ReshapeTo(
            b.Add(ops::Slice{.x = experts, .axis = 1, .start = j, .size = 1}, part("expert")), {}),
        part("id"));
    const ValueId one = b.Add(
        ops::ReshapeTo(b.Add(ops::GatherRows{.table = scale, .ids = column}, part("scale")), {1}),
        part("factor"));
    all = j == 0 ? one : b.Add(ops::Concat{.a = all, .b = one, .axis = 1}, part("factors"));
  }
  return all;
}

// gelu(gate) * up for every pair of row and expert, f32[rows, k, f].
ValueId Activated(const Site& s, const ops::MoeFfn& op) {
  GraphBuilder& b = s.b;
  const ValueId gate =
      b.Add(ops::GroupedMatMul{.x = op.x, .weight = op.gate_weight, .experts = op.experts},
            s.Part("gate"));
  if (op.up_weight != kNoValue) {
    const ValueId up = b.Add(
        ops::GroupedMatMul{.x = op.x, .weight = op.up_weight, .experts = op.experts}, s.Part("up"));
    return b.Add(ops::GeGlu{.gate = gate, .up = up}, s.Part("glu"));
  }
  if (!b.ok()) return kNoValue;
  const int64_t inner = b.graph().type(gate).last().constant / 2;
  return b.Add(
      ops::GeGlu{.gate = b.Add(ops::Slice{.x = gate, .axis = 2, .start = 0, .size = inner},
                               s.Part("gate_half")),
                 .up = b.Add(ops::Slice{.x = gate, .axis = 2, .start = inner, .size = inner},
                             s.Part("up_half"))},
      s.Part("glu"));
}

}  // namespace

ValueId MoeFfn(const Site& s, const ops::MoeFfn& op) {
  GraphBuilder& b = s.b;
  const ValueId experts = op.experts;
  const int64_t k = b.graph().type(experts).dim(1).constant;
  const int64_t width = b.graph().type(op.x).last().constant;
  ValueId weights = op.weights;
  if (op.expert_scale != kNoValue) {
    weights = b.Add(ops::Product(weights, ChosenScales(s, op.expert_scale, experts, k)),
                    s.Part("weights"));
  }
  const ValueId down =
      b.Add(ops::GroupedMatMul{.x = Activated(s, op), .weight = op.down_weight, .experts = experts},
            s.Part("down"));
  const ValueId weighted =
      b.Add(ops::Binary{.a = down,
                        .b = b.Add(ops::ReshapeTo(weights, {k, 1}), s.Part("factors")),
                        .fn = RL_BINARY_MUL},
            s.Part("weighted"));
  // reduce sums along the last dimension only, so the experts of a row are added one by one.
  ValueId sum = kNoValue;
  for (int64_t j = 0; j < k; ++j) {
    const bool last = j + 1 == k;
    const auto part = [&](const char* name) { return s.name + fmt::format("/{}{}", name, j); };
    const ValueId slice =
        b.Add(ops::Slice{.x = weighted, .axis = 1, .start = j, .size = 1}, part("slice"));
    const ValueId term = b.Add(ops::ReshapeTo(slice, {width}), k == 1 ? s.name : part("term"));
    sum = j == 0 ? term : b.Add(ops::Sum(sum, term), last ? s.name : part("sum"));
  }
  return sum;
}

}  // namespace rullama::decompositions

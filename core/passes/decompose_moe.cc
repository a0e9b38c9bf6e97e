// The decomposition of the mixture of experts.
#include <fmt/format.h>

#include "core/passes/decompositions.h"

namespace rullama::decompositions {
namespace {

// expert_scale of each chosen expert, f32[rows, k]: a gather for each column of `experts`.
ValueId ChosenScales(const Site& s, ValueId scale, ValueId experts, int64_t k) {
  GraphBuilder& b = s.b;
  ValueId all = kNoValue;
  for (int64_t j = 0; j < k; ++j) {
    const auto part = [&](const char* name) { return s.name + fmt::format("/{}{}", name, j); };
    const ValueId column = b.Reshape(b.Slice(experts, 1, j, 1, part("expert")), {}, part("id"));
    const ValueId one = b.Reshape(b.GatherRows(scale, column, part("scale")), {1}, part("factor"));
    all = j == 0 ? one : b.Concat(all, one, 1, part("factors"));
  }
  return all;
}

// gelu(gate) * up of every pair of row and expert: f32[rows, k, f].
ValueId Activated(const Site& s, ValueId experts) {
  GraphBuilder& b = s.b;
  const ValueId gate = b.GroupedMatMul(s.in[0], s.in[3], experts, s.Part("gate"));
  if (s.in[4] != kNoValue) {
    const ValueId up = b.GroupedMatMul(s.in[0], s.in[4], experts, s.Part("up"));
    return b.GeGlu(gate, up, s.Part("glu"));
  }
  if (!b.ok()) return kNoValue;
  const int64_t inner = b.graph().type(gate).last().constant / 2;
  return b.GeGlu(b.Slice(gate, 2, 0, inner, s.Part("gate_half")),
                 b.Slice(gate, 2, inner, inner, s.Part("up_half")), s.Part("glu"));
}

}  // namespace

ValueId MoeFfn(const Site& s) {
  GraphBuilder& b = s.b;
  const ValueId experts = s.in[2];
  const int64_t k = b.graph().type(experts).dim(1).constant;
  const int64_t width = b.graph().type(s.in[0]).last().constant;
  ValueId weights = s.in[1];
  if (s.in[6] != kNoValue) {
    weights = b.Mul(weights, ChosenScales(s, s.in[6], experts, k), s.Part("weights"));
  }
  const ValueId down = b.GroupedMatMul(Activated(s, experts), s.in[5], experts, s.Part("down"));
  const ValueId weighted = b.Binary(down, b.Reshape(weights, {k, 1}, s.Part("factors")),
                                    RL_BINARY_MUL, s.Part("weighted"));
  // Sums run along the last dimension only, so the experts of a row are added one by one.
  ValueId sum = kNoValue;
  for (int64_t j = 0; j < k; ++j) {
    const bool last = j + 1 == k;
    const auto part = [&](const char* name) { return s.name + fmt::format("/{}{}", name, j); };
    const ValueId slice = b.Slice(weighted, 1, j, 1, part("slice"));
    const ValueId term = b.Reshape(slice, {width}, k == 1 ? s.name : part("term"));
    sum = j == 0 ? term : b.Add(sum, term, last ? s.name : part("sum"));
  }
  return sum;
}

}  // namespace rullama::decompositions

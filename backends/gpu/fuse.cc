#include "backends/gpu/fuse.h"

#include <rullama/sdk/training.h>

#include <algorithm>
#include <utility>

#include "backends/gpu/fusion_rules.h"

namespace rullama::gpu {
namespace {

bool IsOneOf(uint32_t kind, const std::array<uint32_t, 3>& kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

// The first reader by which a rule applies to the result of an op, or RL_NO_OP.
uint32_t FindReader(const Fusion& fusion, const Rule& rule, const rl_op& op) {
  const uint32_t result = op.results[0];
  const auto fits = [&](uint32_t reader) {
    const rl_op& other = fusion.graph().op(reader);
    return IsOneOf(other.kind, rule.into) && other.inputs[0] == result;
  };
  const std::vector<uint32_t>& readers = fusion.uses().ReadersOf(result);
  switch (rule.readers) {
    case Readers::kOne: {
      const uint32_t reader = fusion.OnlyReader(result);
      return reader != RL_NO_OP && fits(reader) ? reader : RL_NO_OP;
    }
    case Readers::kAll:
      if (!IsPrivate(fusion.value(result)) || readers.empty()) return RL_NO_OP;
      return std::ranges::all_of(readers, fits) ? readers.front() : RL_NO_OP;
    case Readers::kSome: {
      const auto found = std::ranges::find_if(readers, fits);
      return found == readers.end() ? RL_NO_OP : *found;
    }
    case Readers::kFirst: {
      const uint32_t cast = fusion.HalfCastOf(result);
      const auto& users =
          fusion.uses().ReadersOf(cast == RL_NO_OP ? result : fusion.graph().op(cast).results[0]);
      const bool found =
          !users.empty() && IsOneOf(fusion.graph().op(users.front()).kind, rule.into);
      return found ? users.front() : RL_NO_OP;
    }
  }
  return RL_NO_OP;
}

void ApplyRules(Fusion& fusion, uint32_t index) {
  const rl_op& op = fusion.graph().op(index);
  for (const Rule& rule : FusionRules()) {
    if (rule.op != op.kind || fusion.steps().kind > rule.steps || !rule.pays(fusion.target())) {
      continue;
    }
    const uint32_t reader = FindReader(fusion, rule, op);
    if (reader != RL_NO_OP && rule.fuse(fusion, index, reader)) return;
  }
}

}  // namespace

Fusion::Fusion(const sdk::GraphView& graph, const Target& target)
    : graph_(graph),
      target_(target),
      steps_(StepsOf(graph, target)),
      uses_(graph),
      learns_(sdk::Learns(graph)),
      nodes_(graph.op_count()),
      fused_(graph.op_count()) {
  for (uint32_t i = 0; i < graph.op_count(); ++i) nodes_[i].op = i;
  for (uint32_t i = 0; i < graph.value_count(); ++i) writer_.push_back(uses_.ProducerOf(i));
}

uint32_t Fusion::OnlyReader(uint32_t value) const {
  const std::vector<uint32_t>& readers = uses_.ReadersOf(value);
  if (!IsPrivate(graph_.value(value)) || readers.size() != 1) return RL_NO_OP;
  return graph_.op(readers.front()).inputs[0] == value ? readers.front() : RL_NO_OP;
}

uint32_t Fusion::HalfCastOf(uint32_t value) const {
  const uint32_t reader = OnlyReader(value);
  if (reader == RL_NO_OP) return RL_NO_OP;
  const rl_op& op = graph_.op(reader);
  const bool half = op.kind == RL_OP_cast && TypeOf(graph_.value(op.results[0])) == DType::kF16;
  return half ? reader : RL_NO_OP;
}

void Fusion::FuseInto(uint32_t into, uint32_t op) {
  std::vector<uint32_t>& all = nodes_[into].fused;
  all.push_back(op);
  all.insert(all.end(), nodes_[op].fused.begin(), nodes_[op].fused.end());
  std::ranges::sort(all);
  fused_[op] = true;
}

FusedGraph Fusion::Take() {
  FusedGraph fused;
  for (FusedNode& node : nodes_) {
    if (!fused_[node.op]) fused.nodes.push_back(std::move(node));
  }
  return fused;
}

FusedGraph Fuse(const sdk::GraphView& graph, const Target& target) {
  Fusion fusion(graph, target);
  FuseAdapters(fusion);
  for (uint32_t i = 0; i < graph.op_count(); ++i) {
    if (!fusion.IsFused(i)) ApplyRules(fusion, i);
  }
  return fusion.Take();
}

}  // namespace rullama::gpu

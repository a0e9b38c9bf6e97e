// The rules of fusion: a table, and the state of the pass that rules change. Part of fuse.cc.
//
// Thread safety: none.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "backends/gpu/fuse.h"
#include "backends/gpu/graph_facts.h"
#include "backends/gpu/plan_steps.h"

namespace rullama::gpu {

// The nodes while rules run: one for each op, of which those fused into others are dropped at the
// end.
class Fusion {
 public:
  Fusion(const sdk::GraphView& graph, const Target& target);

  [[nodiscard]] const sdk::GraphView& graph() const { return graph_; }
  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] const PlanSteps& steps() const { return steps_; }
  [[nodiscard]] const rl_value& value(uint32_t index) const { return graph_.value(index); }
  [[nodiscard]] const ValueUses& uses() const { return uses_; }
  [[nodiscard]] bool learns() const { return learns_; }  // sdk::Learns()
  [[nodiscard]] FusedNode& node(uint32_t op) { return nodes_[op]; }
  [[nodiscard]] bool IsFused(uint32_t op) const { return fused_[op]; }
  // The only reader of a private value that reads it as its first operand, else RL_NO_OP.
  [[nodiscard]] uint32_t OnlyReader(uint32_t value) const;
  // The same, but only if that reader is a cast to f16.
  [[nodiscard]] uint32_t HalfCastOf(uint32_t value) const;
  // Whether `value` is stored before the node of `op` runs, or is not a result of an op.
  [[nodiscard]] bool IsStoredBefore(uint32_t value, uint32_t op) const {
    return value == RL_NO_VALUE || writer_[value] == RL_NO_OP || writer_[value] < op;
  }
  // Lets the node of `into` compute `op` and whatever `op` computes.
  void FuseInto(uint32_t into, uint32_t op);
  // Lets the node of `op` store `value` instead of its producer.
  void StoreIn(uint32_t op, uint32_t value) { writer_[value] = op; }
  // The nodes that are left.
  FusedGraph Take();

 private:
  const sdk::GraphView& graph_;
  const Target& target_;
  PlanSteps steps_;
  ValueUses uses_;
  bool learns_;
  std::vector<FusedNode> nodes_;  // by op
  std::vector<bool> fused_;       // by op: computed by the node of another op
  std::vector<uint32_t> writer_;  // by value: the op whose node stores it
};

inline const rl_op& OpOf(const Fusion& fusion, uint32_t index) { return fusion.graph().op(index); }

// The readers of an op's first result that a rule wants. A reader reads the result as its first
// operand, except with kFirst.
enum class Readers : uint8_t {
  kOne,   // there is one, of the kinds `into`, and the host does not see the result
  kAll,   // all are of the kinds `into`, and the host does not see the result
  kSome,  // one of them is
  kFirst  // the first reader of the result, or of its only reader if that casts to f16, is
};

struct Rule {
  std::string_view name;
  uint32_t op;                   // the kind of op whose result is looked at
  std::array<uint32_t, 3> into;  // kinds of its readers; 0 fills up
  Readers readers;
  StepKind steps;                      // the last kind of steps that the rule wants
  bool (*pays)(const Target& target);  // whether the device gains from it
  // Fuses if shapes and order allow it. `reader`: the first reader of a kind of `into`.
  bool (*fuse)(Fusion& fusion, uint32_t op, uint32_t reader);
};

// In order of preference for each kind of op.
std::span<const Rule> FusionRules();

// Before the rules, which then see that the products with a weight and its A are one: lets products
// compute what their adapters add (fusion_adapters.cc).
void FuseAdapters(Fusion& fusion);

}  // namespace rullama::gpu

// Lowers a graph to a list of dispatches: fuses its ops into nodes (fuse.h), then lets the row of
// each node's main op (op_rows.h) append the dispatches of the node. Each dispatch records the
// memory it reads and writes, so that the schedule (schedule.h) can tell which dispatches may run
// concurrently.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backends/gpu/address_map.h"
#include "backends/gpu/dispatch_builder.h"
#include "backends/gpu/dispatch_list.h"
#include "backends/gpu/fuse.h"
#include "backends/gpu/graph_facts.h"
#include "backends/gpu/plan_steps.h"
#include "backends/gpu/scratch_pool.h"
#include "backends/gpu/target.h"

namespace rullama::gpu {

// The words of a step in device memory.
struct StepWords {
  uint32_t t = 0, r = 0;
  uint32_t failed_op = 0;  // the first, counted from 1; 0: none
  uint32_t reserved = 0;
};

struct LoweredGraph {
  std::vector<Dispatch> dispatches;
  // The ops, ascending, that the dispatches of a node compute, by Dispatch::op_index.
  std::map<uint32_t, std::vector<uint32_t>> ops_of_node = {};
  uint64_t workspace_bytes = 0;  // allocated from the device for the plan
};

// `step`: the address of the step's words. Memory comes from `device` and stays the caller's.
// Throws RL_UNSUPPORTED for an op without a kernel.
LoweredGraph Lower(PlanDevice& device, const sdk::GraphView& graph, const Target& target,
                   DeviceAddress step);

// The interface for the emission of a node: what it reads, and the parts of the plan it adds to.
class PlanBuilder {
 public:
  PlanBuilder(PlanDevice& device, const sdk::GraphView& graph, const Target& target,
              DeviceAddress step);

  // Appends the dispatches of a node.
  void Emit(const FusedNode& node);
  LoweredGraph Take() {
    return {.dispatches = dispatches_.Take(), .workspace_bytes = scratch_.bytes()};
  }

  // ---- the graph and the device
  [[nodiscard]] const sdk::GraphView& graph() const { return graph_; }
  [[nodiscard]] const Target& target() const { return target_; }
  // Where kernels read T and R. Empty if the host, not a dispatch, writes them.
  [[nodiscard]] const Scratch& step() const { return step_; }
  [[nodiscard]] uint32_t MaxGroups(uint32_t axis) const { return target_.can.max_groups[axis]; }
  [[nodiscard]] bool FollowsPointers() const { return target_.can.follows_pointers; }

  // ---- the node
  [[nodiscard]] const FusedNode& node() const { return *node_; }
  [[nodiscard]] const Prologue* prologue() const {  // null if the node has none
    return node_->prologue ? &*node_->prologue : nullptr;
  }
  [[nodiscard]] uint32_t op_index() const { return node_->op; }
  [[nodiscard]] const rl_op& op() const { return graph_.op(op_index()); }  // its main op
  template <typename Attrs>
  [[nodiscard]] Attrs attrs() const {
    return sdk::GraphView::attrs<Attrs>(op());
  }
  // `i`: an operand index of <rullama/sdk/operands.h>.
  [[nodiscard]] uint32_t InputIndex(uint32_t i) const { return OperandIndex(op(), i); }
  [[nodiscard]] const rl_value& Input(uint32_t i) const { return graph_.value(InputIndex(i)); }
  [[nodiscard]] uint32_t ResultIndex(uint32_t i = 0) const { return op().results[i]; }
  [[nodiscard]] const rl_value& Result(uint32_t i = 0) const {
    return graph_.value(ResultIndex(i));
  }
  // The value that holds the first result of the node, after its epilogue.
  [[nodiscard]] uint32_t StoredIndex() const { return node_->StoredResult(ResultIndex()); }

  // ---- values
  // The value of a dimension at the largest T and R, in a RowChunk those of its rows.
  [[nodiscard]] int64_t Max(const rl_dim& dim) const;
  [[nodiscard]] int64_t MaxRows(const rl_value& value) const;
  // The same by which kernels are chosen (PlanSteps::decisive).
  [[nodiscard]] int64_t Decisive(const rl_dim& dim) const;
  [[nodiscard]] int64_t DecisiveRows(const rl_value& value) const;
  [[nodiscard]] const PlanSteps& steps() const { return steps_; }
  [[nodiscard]] bool Learns() const { return learns_; }  // sdk::Learns
  [[nodiscard]] bool LossDependsOnExperts() const { return loss_depends_on_experts_; }
  [[nodiscard]] static const DeviceWeight& WeightOf(const rl_value& value);
  [[nodiscard]] Range RangeOf(const Operand& operand) const;
  // The ops that read a value; empty if `x` is scratch.
  [[nodiscard]] std::span<const uint32_t> ReadersOf(const Operand& x) const;
  // The last op that reads what this one does as the rows of a product: of a value the last of its
  // readers that is one, of other memory this op.
  [[nodiscard]] uint32_t LastProductOf(const Operand& x) const;

  // ---- the parts of the plan
  [[nodiscard]] AddressMap& addresses() { return addresses_; }
  [[nodiscard]] ScratchPool& scratch() { return scratch_; }
  [[nodiscard]] DispatchList& dispatches() { return dispatches_; }
  // Memory of `words` words in which a dispatch leaves numbers that other workgroups of it wait
  // for: each is MatVecDot::kNoSumYet when a step begins.
  Scratch TakeAwaited(uint64_t words);

 private:
  friend class RowChunk;

  const sdk::GraphView& graph_;
  const Target& target_;
  Scratch step_;
  PlanSteps steps_;
  bool learns_;
  bool loss_depends_on_experts_;
  StepSize largest_;  // of the dispatches: of the plan or of a RowChunk
  ValueUses uses_;
  const FusedNode* node_ = nullptr;
  ScratchPool scratch_;
  AddressMap addresses_;
  DispatchList dispatches_;
  Scratch awaited_;  // memory that TakeAwaited() has not given out yet
};

// While it exists, T and R of the plan's dispatches are the rows of a chunk, at most `rows`, which
// a dispatch of RowChunks has written to `step`.
class RowChunk {
 public:
  RowChunk(PlanBuilder& plan, const Scratch& step, int64_t rows)
      : plan_(plan), step_(plan.step_), largest_(plan.largest_) {
    plan.step_ = step;
    plan.largest_ = {rows, rows};
  }
  ~RowChunk() {
    plan_.step_ = step_;
    plan_.largest_ = largest_;
  }
  RowChunk(const RowChunk&) = delete;
  RowChunk& operator=(const RowChunk&) = delete;

 private:
  PlanBuilder& plan_;
  Scratch step_;  // of the plan
  StepSize largest_;
};

// `columns` columns of each row of f32.
struct ColumnCopy {
  rl_dim rows;
  int64_t columns;
  Operand from;
  int64_t from_columns;  // of a row
  int64_t from_first = 0;
  Operand to;
  int64_t to_columns;  // of a row
  int64_t to_first = 0;
};
void CopyColumns(PlanBuilder& plan, const ColumnCopy& copy);
// The workgroups of a kernel with a workgroup or a subgroup for each row (row_lanes.kernel).
struct RowSplit {
  uint32_t threads;  // of a workgroup
  uint64_t groups;
  bool narrow;  // a subgroup for each row
};
// `threads`: for a workgroup for each row of `columns` values.
RowSplit SplitRows(const PlanBuilder& plan, const rl_dim& rows, int64_t columns, uint32_t threads);
// Invocations of a workgroup for a row of this length, a power of two.
uint32_t ThreadsOfRow(const Target& target, int64_t columns);
// Appends a copy of the first operand to the result of the current op.
void Copy(PlanBuilder& plan);

}  // namespace rullama::gpu

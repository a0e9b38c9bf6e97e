// A compiled graph on the CPU: a list of nodes that the workers of the pool walk together.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/node.h"
#include "backends/cpu/profile.h"
#include "backends/cpu/thread_pool.h"

namespace rullama::cpu {

// Memory of a plan beside the arena: quantised activations, partial results. 64-byte aligned.
// Handed out while the plan is compiled, in the order its nodes run in, so what one op has given
// back may serve a later one.
class Workspace {
 public:
  // Zeroed; lives as long as the workspace.
  std::byte* Allocate(uint64_t bytes);
  // Until EndOp: for what only the nodes of one op share. Not zeroed.
  std::byte* Borrow(uint64_t bytes);
  void EndOp();
  // Until it is given back. Not zeroed.
  std::byte* Take(uint64_t bytes);
  void GiveBack(std::byte* data);

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t allocations() const { return blocks_.size(); }

 private:
  std::vector<std::unique_ptr<CpuBuffer>> blocks_;
  std::multimap<uint64_t, std::byte*> free_;  // by size
  std::map<std::byte*, uint64_t> taken_;      // sizes of what Take has handed out
  std::vector<std::byte*> borrowed_;          // by the op that is being compiled
  uint64_t bytes_ = 0;
};

class NodeList {
 public:
  void Add(std::unique_ptr<Node> node) {
    node->op_index = op_index_;
    nodes_.push_back(std::move(node));
  }
  // Rows of a float value in the form that products read, made once for all products that read it
  // and share it alike. The form is FormFor(share.Of(rows)), rows are ActivationRowBytes() apart.
  // Valid until the value's memory is written again.
  std::byte* Activations(const CompileContext& context, const View& x, RowShare share = {});
  // The same for memory that the op itself has borrowed: made for this op alone.
  std::byte* ActivationsOnce(const CompileContext& context, const View& x, RowShare share = {});
  // Says that the results of an op overwrite memory: rows made of what was there are stale.
  void Written(const rl_value& value, Workspace& workspace);

  void set_op_index(uint32_t index) { op_index_ = index; }
  [[nodiscard]] const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }

 private:
  struct ActivationRows {
    const std::byte* source;
    uint64_t source_bytes;  // at the largest step
    RowShare share;
    std::byte* rows;
  };
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<ActivationRows> activations_;
  uint32_t op_index_ = RL_NO_OP;
};

class CpuPlan final : public sdk::Plan {
 public:
  // `log` takes the profile at the end; none: no profile.
  CpuPlan(const sdk::GraphView& graph, const KernelTable& kernels, int planes, ThreadPool& pool,
          const sdk::Host* log);
  ~CpuPlan() override;
  CpuPlan(const CpuPlan&) = delete;
  CpuPlan& operator=(const CpuPlan&) = delete;
  void Execute(int64_t t, int64_t r) override;
  [[nodiscard]] rl_plan_stats Stats() const override;

 private:
  void Walk(const Step& step, int worker);
  // Walk, one node after the other, timed.
  void WalkTimed(const Step& step, int worker);
  void RunShared(size_t node, const Step& step, int worker);

  ThreadPool& pool_;
  Workspace workspace_;
  NodeList list_;
  std::vector<int64_t> items_;      // of each node, at the current step
  std::vector<std::string> names_;  // of the ops, for the profile
  const sdk::Host* log_;
  Profile profile_;
  uint64_t executions_ = 0;
  uint64_t dispatches_ = 0;
};

}  // namespace rullama::cpu

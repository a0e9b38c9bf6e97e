// A compiled graph on the CPU: a list of nodes that the workers of the pool walk together.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/cpu/node.h"
#include "backends/cpu/op_times.h"
#include "backends/cpu/thread_pool.h"

namespace rullama::cpu {

// Memory of a plan outside the arena: converted activations and partial results. 64-byte aligned.
// Blocks are handed out while the plan is compiled, in the order in which its nodes run, so a block
// that one op has given back can be used by a later op.
class Workspace {
 public:
  // A zeroed block for the lifetime of the workspace.
  std::byte* Allocate(uint64_t bytes);
  // A block for the nodes of the current op, valid until EndOp(). Not zeroed.
  std::byte* AllocateForOp(uint64_t bytes);
  void EndOp();
  // A block that is valid until Release(). Not zeroed.
  std::byte* Acquire(uint64_t bytes);
  void Release(std::byte* data);

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t allocations() const { return blocks_.size(); }

 private:
  std::vector<std::unique_ptr<CpuBuffer>> blocks_;
  std::multimap<uint64_t, std::byte*> free_;  // by size
  std::map<std::byte*, uint64_t> in_use_;     // sizes of the blocks in use
  std::vector<std::byte*> op_blocks_;         // blocks of the current op
  uint64_t bytes_ = 0;
};

// Rows of x as products with weights of one type read them. Their format depends on the number of
// rows of a step. Copyable; borrows the memory.
class ProductRows {
 public:
  // Rows of k elements, of which each product multiplies `share`. `floats`: in kFloat32;
  // `converted`: in the other formats, null if no step uses them.
  ProductRows(const CompileContext& context, DType weight, size_t k, RowShare share,
              const std::byte* floats, const std::byte* converted);

  // `rows`: those of the value in the step.
  [[nodiscard]] ActivationFormat FormatAt(int64_t rows) const {
    return FormatFor(kernels_, weight_, share_.Of(rows));
  }
  [[nodiscard]] size_t StrideAt(int64_t rows) const {
    return ActivationRowBytes(FormatAt(rows), k_, bits_);
  }
  [[nodiscard]] const std::byte* DataAt(int64_t rows) const {
    return FormatAt(rows) == ActivationFormat::kFloat32 ? floats_ : converted_;
  }
  // Sets the members of `args` that say what x is, but not the batch.
  void Describe(int64_t rows, MatMulArgs& args) const;

 private:
  const KernelTable& kernels_;
  DType weight_;
  size_t k_;
  ActivationBits bits_;
  RowShare share_;
  const std::byte* floats_;
  const std::byte* converted_;
};

class NodeList {
 public:
  void Add(std::unique_ptr<Node> node) {
    node->op_index = op_index_;
    nodes_.push_back(std::move(node));
  }
  // Converts the rows of a float value to what products with weights of this type read. All
  // products that read the same rows with the same share use one conversion. Valid until the
  // value's memory is written again.
  ProductRows Activations(const CompileContext& context, const View& x, DType weight,
                          RowShare share = {});
  // Like Activations(), but for the current op alone: x is memory from AllocateForOp().
  ProductRows ActivationsOnce(const CompileContext& context, const View& x, DType weight,
                              RowShare share = {});
  // Memory for a table that depends on a value and on parameters. All ops that ask for the same
  // share it, and the first adds the node that fills it. Valid until the value's memory is written
  // again.
  struct Table {
    std::byte* data;
    bool is_new;
  };
  Table TableOf(const CompileContext& context, const View& x, std::vector<double> parameters,
                uint64_t bytes);
  // Drops the converted rows and the tables of values whose memory the result `value` overwrites.
  void Written(const rl_value& value, Workspace& workspace);

  void set_op_index(uint32_t index) { op_index_ = index; }
  [[nodiscard]] const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }

 private:
  struct ActivationRows {
    const std::byte* source;
    uint64_t source_bytes;  // at the largest step
    DType weight;
    RowShare share;
    std::byte* rows;
  };
  struct TableRows {
    const std::byte* source;
    uint64_t source_bytes;  // at the largest step
    std::vector<double> parameters;
    std::byte* rows;
  };
  // Forgets and releases those made of memory that [data, data + bytes) overlaps.
  template <typename Rows>
  static void DropOverwritten(std::vector<Rows>& all, const std::byte* data, uint64_t bytes,
                              Workspace& workspace) {
    std::erase_if(all, [&](const Rows& rows) {
      const bool stale = rows.source < data + bytes && data < rows.source + rows.source_bytes;
      if (stale) workspace.Release(rows.rows);
      return stale;
    });
  }

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<ActivationRows> activations_;
  std::vector<TableRows> tables_;
  uint32_t op_index_ = RL_NO_OP;
};

class CpuPlan final : public sdk::Plan {
 public:
  CpuPlan(const sdk::GraphView& graph, const KernelTable& kernels, ActivationBits activation_bits,
          ThreadPool& pool, WeightArena& arena, sdk::Host host);
  void Execute(int64_t t, int64_t r) override;
  [[nodiscard]] rl_plan_stats Stats() const override;
  [[nodiscard]] std::span<const rl_op_time> Times() override;

 private:
  // Nodes that begin when those before them have ended: one that the workers share, or a row
  // of nodes with one item or none, which one worker runs.
  struct Phase {
    size_t begin;
    size_t end;
    bool shared;
  };

  void MakePhases(const Step& step);
  // As ThreadPool::Body.
  bool RunPhase(const Phase& phase, const Step& step, int worker);
  // Runs nodes with one item, one after the other.
  void RunAlone(const Phase& phase, const Step& step, int worker);
  // Runs the remaining items of a node, and returns their number.
  int64_t RunItems(size_t node, const Step& step, int worker);

  ThreadPool& pool_;
  sdk::Host host_;
  KernelTable kernels_;  // the nodes refer to it
  Workspace workspace_;
  NodeList list_;
  std::vector<int64_t> items_;      // Items() of each node at the current step
  std::vector<Phase> phases_;       // of the current step
  std::unique_ptr<OpTimes> times_;  // null unless they are recorded
  uint64_t executions_ = 0;
  uint64_t dispatches_ = 0;
};

}  // namespace rullama::cpu

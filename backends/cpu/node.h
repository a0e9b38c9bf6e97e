// The parts of a compiled plan: nodes, views of memory, and the context in which an op is compiled.
// Internal to the CPU backend.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/backend.h>
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/weight.h"

namespace rullama::cpu {

// The sizes of one execution: token rows T, wanted rows R, and workers.
struct Step {
  int64_t t = 1;
  int64_t r = 1;
  int workers = 1;
};

// Host memory of a buffer; 64-byte aligned, zeroed.
class CpuBuffer final : public sdk::Buffer {
 public:
  explicit CpuBuffer(uint64_t bytes);
  ~CpuBuffer() override;
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  std::byte* raw_ = nullptr;  // the allocation
  std::byte* data_;           // its first aligned byte
  uint64_t size_;
};

// A value with its memory resolved. Copyable; borrows the memory.
struct View {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  bool packed = false;  // weights only: rows are packed (kernels/packed_rows.h)
  int rank = 0;
  rl_dim dims[RL_MAX_RANK] = {};
  int64_t first_row = 0;  // of the value; `data` is where it lies
  int64_t max_rows = INT64_MAX;

  static View Of(const rl_value& value);
  // Rows [first, first + most) of a value of a plain type: as many of them as the step has.
  [[nodiscard]] View RowRange(int64_t first, int64_t most) const;

  [[nodiscard]] bool present() const { return data != nullptr; }
  [[nodiscard]] int64_t Dim(int axis, const Step& step) const {
    return sdk::DimAt(dims[axis], step.t, step.r);
  }
  // Dim() for kernels, which take size_t.
  [[nodiscard]] size_t Count(int axis, const Step& step) const {
    return static_cast<size_t>(Dim(axis, step));
  }
  [[nodiscard]] int64_t Rows(const Step& step) const {
    return std::clamp<int64_t>(Dim(0, step) - first_row, 0, max_rows);
  }
  // Elements of one row: the product of the inner dimensions.
  [[nodiscard]] int64_t RowElements(const Step& step) const {
    int64_t elements = 1;
    for (int axis = 1; axis < rank; ++axis) elements *= Dim(axis, step);
    return elements;
  }
  [[nodiscard]] int64_t Last(const Step& step) const { return Dim(rank - 1, step); }
  [[nodiscard]] int64_t Elements(const Step& step) const { return Rows(step) * RowElements(step); }
  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// A unit of work that the workers share. The plan splits [0, Items()) among them, so items must be
// independent. A node with one item runs on one worker, which continues with successive nodes of
// this kind.
class Node {
 public:
  virtual ~Node() = default;
  [[nodiscard]] virtual int64_t Items(const Step& step) const = 0;
  // How many of the `items` of a step surely have work, about the same each. Workers take shares of
  // them, so 1 lets them take items one by one.
  [[nodiscard]] virtual int64_t EvenItems(const Step& /*step*/, int64_t items) const {
    return items;
  }
  // Runs items [begin, end).
  virtual void Run(const Step& step, int worker, int64_t begin, int64_t end) = 0;

  // True after Fail(). Any worker may fail; the first message is kept until the plan takes it.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string TakeFailure();
  uint32_t op_index = RL_NO_OP;
  // The first item of the current execution that no worker has taken.
  std::atomic<int64_t> next_item{0};
  // The number of its items that have not ended.
  std::atomic<int64_t> items_left{0};

 protected:
  void Fail(std::string message);

 private:
  std::atomic<bool> claimed_{false};
  std::atomic<bool> failed_{false};
  std::string message_;
};

// The fraction of the rows of a value that one product multiplies: all of them or, with experts,
// the average share of one expert.
struct RowShare {
  int64_t numerator = 1;
  int64_t denominator = 1;
  [[nodiscard]] size_t Of(int64_t rows) const {
    return static_cast<size_t>(rows * numerator / denominator);
  }
  bool operator==(const RowShare&) const = default;
};

// Everything a node may need while it is built.
struct CompileContext {
  const sdk::GraphView& graph;
  const rl_op& op;
  const KernelTable& kernels;
  // k8 costs 0.8 % of accuracy in the logits of a small model; k16 costs twice the dot products.
  ActivationBits activation_bits;
  int workers;
  // Memory of the plan; 64-byte aligned.
  class Workspace& workspace;
  // The list to which nodes are appended in execution order.
  class NodeList& nodes;
  // Memory of the device for copies of weights.
  WeightArena& arena;

  [[nodiscard]] View Input(uint32_t i) const {
    const rl_value* value = graph.input(op, i);
    return value == nullptr ? View{} : View::Of(*value);
  }
  // The weight that input i, a constant, is.
  [[nodiscard]] CpuWeight& Weight(uint32_t i) const {
    return *sdk::WeightOf<CpuWeight>(*graph.input(op, i));
  }
  [[nodiscard]] View Result(uint32_t i = 0) const { return View::Of(graph.result(op, i)); }
  template <typename Attrs>
  [[nodiscard]] Attrs attrs() const {
    return sdk::GraphView::attrs<Attrs>(op);
  }
  [[nodiscard]] Step MaxStep() const { return {graph.max_t(), graph.max_r(), workers}; }
};

}  // namespace rullama::cpu

// Runs a whole graph in float64, op by op, on the dequantised weights: the oracle that backends are
// tested against, slow and plain on purpose. Values can be read by name after a step, so that
// layers of a backend can be compared with the reference.
//
// Ownership: owns its graph, inputs and states. Packed constants and bound state memory are
// borrowed and must outlive it. Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/reference/tensor.h"

namespace rullama::reference {

// Rows [first_row, first_row + dim 0) of a tensor of the model file, of this type: packed, or
// unpacked with the dims of the type.
using ConstantProvider = std::function<Result<Tensor>(std::string_view source, int64_t first_row,
                                                      const TensorType& type)>;

struct InterpreterOptions {
  // Keep all values of a step until the next step; otherwise only outputs are kept.
  bool keep_all = true;
  // Polled between ops. Returning true ends the run with the error run.cancelled. May be empty.
  std::function<bool()> cancelled;
  // Called after each op that was run. May be empty.
  std::function<void(OpIndex)> after_op = {};
};

class Interpreter {
 public:
  // Verifies the graph and gets every constant from `provider`. States are initially zero.
  static Result<Interpreter> Create(Graph graph, const ConstantProvider& provider,
                                    InterpreterOptions options = {});

  [[nodiscard]] const Graph& graph() const { return graph_; }

  // Sets an input for the next and all later steps. Its dims are checked when it is used.
  // Error ref.input if the graph has no such input or the dtype differs.
  Status Bind(std::string_view input, Tensor tensor);

  // Stores a state in these bytes (canonical row-major layout) instead of in the interpreter. Error
  // ref.state.
  Status BindStateMemory(ValueId state, std::span<std::byte> bytes);

  // Runs one step. Error ref.input for an input that is unbound or has other dims than its type at
  // `extents`; the errors of EvaluateOp, with the op named; run.cancelled. `failed_op` (if given)
  // receives the index of the op that failed. After an error, states contain the updates of the ops
  // that have run.
  Status Run(const Extents& extents, OpIndex* failed_op = nullptr);

  // A value of the last step, a state, an input or a constant; null if it does not exist or has not
  // been kept.
  [[nodiscard]] const Tensor* Get(ValueId id) const;
  [[nodiscard]] const Tensor* Get(std::string_view value_name) const;
  [[nodiscard]] const Tensor* GetOutput(std::string_view output_name) const;

  // The current contents of a state, by the name of its first version.
  [[nodiscard]] Result<Tensor> ReadState(std::string_view name) const;
  Status WriteState(std::string_view name, const Tensor& tensor);

 private:
  Interpreter(Graph graph, InterpreterOptions options);

  // The value that holds the tensor of a value: versions of a state share that of the first
  // version.
  [[nodiscard]] ValueId Home(ValueId id) const;
  Status CheckInputs(const Extents& extents) const;
  Status RunOp(OpIndex index, int64_t t);
  Status Append(const Op& op);
  // Replaces the contents of a state, rounded to its dtype.
  void StoreState(ValueId home, Tensor unpacked);
  void DropDeadValues(OpIndex index);

  Graph graph_;
  InterpreterOptions options_;
  std::vector<Tensor> tensors_;                     // parallel to graph_.values
  std::vector<bool> present_;                       // true if tensors_[i] is set
  std::vector<std::span<std::byte>> state_memory_;  // parallel; empty unless bound
  std::vector<OpIndex> last_use_;                   // kNoOp: outlives the step
};

}  // namespace rullama::reference

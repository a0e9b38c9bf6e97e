// Builds a graph op by op, inferring and checking types on the way. The first mistake is kept and
// returned by Finish; methods called after it do nothing and return kNoValue, so a model builder
// reads as straight-line code. Names are made unique by the caller; an empty name gets "<op>.<n>".
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/ir/op_structs.h"

namespace rullama {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name);
  // Continues an existing graph (samplers append to a model's graph).
  explicit GraphBuilder(Graph graph);

  ValueId Input(std::string_view name, TensorType type);
  // Declares a constant of this type: rows [first_row, first_row + dim 0) of tensor `source` of the
  // model file.
  ValueId Constant(std::string_view source, TensorType type, int64_t first_row = 0);
  ValueId State(std::string_view name, TensorType type);
  void Output(std::string_view name, ValueId value, RowDemand demand = RowDemand::kWanted);
  // Declares the input that names the wanted rows; done once.
  void WantedRows(ValueId rows);

  // The names of the results of ops that follow begin with `prefix`: for parts that a graph has
  // several times.
  void NameOps(std::string prefix) { prefix_ = std::move(prefix); }

  // Adds any op: operands in the order of ops.def, kNoValue for an absent optional one.
  std::vector<ValueId> Add(OpKind kind, std::vector<ValueId> inputs, OpAttrs attrs,
                           std::string_view name = {});

  // Adds an op with named operands and attributes (op_structs.h).
  template <ops::OpStruct Op>
  ops::ResultOf<Op> Add(const Op& op, std::string_view name = {}) {
    constexpr size_t kCount = ops::kResultCount<Op>;
    const std::vector<ValueId> results = Add(Op::kKind, OperandsOf(op), AttributesOf(op), name);
    if constexpr (kCount == 1) {
      return results[0];
    } else {
      std::array<ValueId, kCount> values;
      std::copy_n(results.begin(), kCount, values.begin());
      return std::bit_cast<typename Op::Results>(values);
    }
  }

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] bool ok() const { return !error_.has_value(); }

  // The graph, or the first error. The builder is empty afterwards.
  Result<Graph> Finish() &&;

 private:
  ValueId AddValue(Value value);
  void Fail(Error error);

  Graph graph_;
  std::string prefix_;  // of the names of ops
  std::optional<Error> error_;
};

}  // namespace rullama

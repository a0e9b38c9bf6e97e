// The work of an op in one step, from its row of the op table and the shapes: the bytes that it has
// to read and write if nothing of it is kept from the op before, and its arithmetic operations. For
// profiles and traces, the same for every backend.
//
// A weight counts as many bytes as it has in the graph's type, a table the rows that are gathered,
// a cache the rows that are seen. A multiplication with its addition counts two operations; ops
// other than products, convolutions and attention count one for each element of their largest
// operand or result. Of mixtures of experts, each row counts its own experts, at most all.
//
// Pure functions; values are f64, so that no product of sizes wraps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ir/graph.h"

namespace rullama {

struct OpCost {
  double bytes = 0;
  double stored_bytes = 0;  // the part of `bytes` that is read of weights, tables and caches
  double operations = 0;

  OpCost& operator+=(const OpCost& other) {
    bytes += other.bytes;
    stored_bytes += other.stored_bytes;
    operations += other.operations;
    return *this;
  }
  bool operator==(const OpCost&) const = default;
};

// A step as far as costs depend on it.
struct StepForCost {
  Extents extents;
  // The position and the slot of each of the T rows, on which the visible part of a cache depends.
  // For another length: attention counts the new rows as one sequence from position 0.
  std::span<const int32_t> pos = {};
  std::span<const int32_t> slot = {};
};

// `op` is of `graph`, which is verified.
OpCost CostOf(const Graph& graph, const Op& op, const StepForCost& step);

// The cost of ops that a backend runs as one: what they pass on to each other counts no bytes, and
// is not written if nothing else reads it. Borrows the graph.
class GroupCost {
 public:
  // `ops`: indices into the graph.
  GroupCost(const Graph& graph, std::span<const uint32_t> ops);
  [[nodiscard]] OpCost At(const StepForCost& step) const;
  // Whether the cost depends on the positions and slots of a step, and not on its extents alone.
  [[nodiscard]] bool depends_on_rows() const { return depends_on_rows_; }

 private:
  // A value that an op of the group computes and another one reads.
  struct Inner {
    TensorType type = {};
    int reads = 0;        // by ops of the group
    bool leaves = false;  // others read it
  };
  const Graph* graph_;
  std::vector<uint32_t> ops_;
  std::vector<Inner> inner_;
  bool depends_on_rows_ = false;
};

}  // namespace rullama

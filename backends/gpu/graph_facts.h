// Facts about the values of a graph: shapes, types, and which ops read and produce them. Pure
// functions, and tables that do not change.
#pragma once

#include <rullama/sdk/backend.h>

#include <cstdint>
#include <vector>

#include "backends/gpu/weights.h"

namespace rullama::gpu {

inline DType TypeOf(const rl_value& value) { return static_cast<DType>(value.dtype); }
inline int64_t Last(const rl_value& value) { return value.dims[value.rank - 1].constant; }
// Elements of a row: the product of all dimensions but the first, which are constant.
int64_t RowElements(const rl_value& value);
// The product of the dimensions between the first and the last.
int64_t MiddleElements(const rl_value& value);
// Whether the graph computes a loss or gradients through layers that choose experts. There a
// product's rounding of its operand to f16 can choose another expert, which changes the loss by
// more than rounding does.
bool LossDependsOnExperts(const sdk::GraphView& graph);
// The layout on the device of a value whose dimensions are all constant.
WeightShape ShapeOfConstant(const rl_value& value);

// Operand `i` of an op, or RL_NO_VALUE if it is absent.
inline uint32_t OperandIndex(const rl_op& op, uint32_t i) {
  return i < op.input_count ? op.inputs[i] : RL_NO_VALUE;
}

// Whether ops of this kind multiply by a matrix of weights, so that they may read f16 rows.
bool IsProduct(uint32_t kind);

// Whether the host never sees a value, so that it may lie anywhere or not be computed at all.
bool IsPrivate(const rl_value& value);

// The producer and the readers of each value. Keeps no reference to the graph.
class ValueUses {
 public:
  explicit ValueUses(const sdk::GraphView& graph);
  // The op that computes a value, or RL_NO_OP.
  [[nodiscard]] uint32_t ProducerOf(uint32_t value) const { return producers_[value]; }
  // The ops that read a value, in order, once per operand.
  [[nodiscard]] const std::vector<uint32_t>& ReadersOf(uint32_t value) const {
    return readers_[value];
  }

 private:
  std::vector<uint32_t> producers_;
  std::vector<std::vector<uint32_t>> readers_;
};

}  // namespace rullama::gpu

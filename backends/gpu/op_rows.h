// The ops that the GPU backends run: one row per op of ops.def, defined next to the op's emission
// in ops_*.cc. A primitive without a row does not link; composites that run whole are
// listed in op_rows.cc. Ops that are one plain kernel have their rows from kernels.def.
#pragma once

#include <rullama/sdk/op_table.h>

#include <cstdint>
#include <string>

namespace rullama::gpu {

class PlanBuilder;

// The limits of a device that refusals depend on.
struct DeviceLimits {
  bool float64 = false;               // the device has 64-bit floats
  uint64_t max_allocation_bytes = 0;  // that a constant may take without being split into pieces
  bool (*has_kernels_for)(DType) = nullptr;  // Capabilities::has_kernels_for
};

using Refusal = std::string(const sdk::GraphView& graph, const rl_op& op,
                            const DeviceLimits& limits);

// `build` appends the dispatches of PlanBuilder::node(), whose main op is of the row's kind.
using OpRow = sdk::OpRow<Refusal, void(PlanBuilder& plan)>;

namespace rows {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) extern const OpRow k##Name;
#include <rullama/abi/ops.def>
}  // namespace rows

const sdk::OpTable<OpRow>& OpRows();

// ---- the refusals that rows are made of; empty: no objection ------------------------------------

// Refuses dimensions that kernels cannot count and constants above the largest allocation.
// `reads_pieces`: the op finds the rows of a constant that lies in several allocations.
std::string RefuseShapes(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits,
                         bool reads_pieces = false);
// RefuseShapes, and operands other than plain contiguous elements.
std::string RefusePlain(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits);
// RefuseShapes, and weights (OperandRole::kWeight) that are not constants or have a type without
// kernels.
std::string RefuseWeights(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits,
                          bool reads_pieces = false);
// Whether a value has one of the types that kernels read and write element by element.
bool IsPlainType(DType dtype);

}  // namespace rullama::gpu

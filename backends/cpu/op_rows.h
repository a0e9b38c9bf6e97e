// The ops that the CPU backend runs: one row per op of ops.def, defined next to the op's lowering
// in ops_*.cc. A primitive without a row does not link; composites that run whole are
// listed in op_rows.cc.
#pragma once

#include <rullama/sdk/op_table.h>

#include <memory>
#include <string>

#include "backends/cpu/plan.h"

namespace rullama::cpu {

// `build` appends the nodes of an op to the plan.
using OpRow = sdk::OpRow<std::string(const sdk::GraphView& graph, const rl_op& op,
                                     const KernelTable& kernels),
                         void(const CompileContext& context)>;

namespace rows {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) extern const OpRow k##Name;
#include <rullama/abi/ops.def>
}  // namespace rows

const sdk::OpTable<OpRow>& OpRows();

// Refuses weights (OperandRole::kWeight) of a type without kernels and weights that are computed.
std::string RefuseWeights(const sdk::GraphView& graph, const rl_op& op, const KernelTable& kernels);

// The `build` of an op that is a single node.
template <typename T>
void AddNode(const CompileContext& context) {
  context.nodes.Add(std::make_unique<T>(context));
}

}  // namespace rullama::cpu

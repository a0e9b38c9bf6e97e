#include "backends/cpu/op_rows.h"

#include <rullama/sdk/operands.h>

namespace rullama::cpu {
namespace {

constexpr const OpRow* kAllRows[] = {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) &rows::k##Name,
#include <rullama/ir/ops.def>
};

std::string RefuseComposite(const sdk::GraphView& /*graph*/, const rl_op& /*op*/,
                            const KernelTable& /*kernels*/) {
  return "runs as its parts";
}

}  // namespace

// The core decomposes these composites without loss.
const OpRow rows::kPleInject = {RL_OP_ple_inject, RefuseComposite, nullptr};
const OpRow rows::kSoftEmbed = {RL_OP_soft_embed, RefuseComposite, nullptr};

const sdk::OpTable<OpRow>& OpRows() {
  static constexpr sdk::OpTable<OpRow> kTable(kAllRows);
  return kTable;
}

std::string RefuseWeights(const sdk::GraphView& graph, const rl_op& op,
                          const KernelTable& kernels) {
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const rl_value* weight = graph.input(op, i);
    if (weight == nullptr || RoleOf(op.kind, i) != OperandRole::kWeight) continue;
    const auto dtype = static_cast<DType>(weight->dtype);
    if (FindWeight(kernels, dtype) == nullptr) return "weight type " + std::string(NameOf(dtype));
    if (weight->lifetime != RL_LIFETIME_CONSTANT) return "weight is no constant";
  }
  return {};
}

}  // namespace rullama::cpu

#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

constexpr const OpRow* kAllRows[] = {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) &rows::k##Name,
#include <rullama/abi/ops.def>
};

}  // namespace

// The core decomposes these composites without loss.
const OpRow rows::kPleInject = {RL_OP_ple_inject, sdk::RefuseComposite, nullptr};
const OpRow rows::kMeanRows = {RL_OP_mean_rows, sdk::RefuseComposite, nullptr};
const OpRow rows::kLayerNorm = {RL_OP_layer_norm, sdk::RefuseComposite, nullptr};
const OpRow rows::kSoftEmbed = {RL_OP_soft_embed, sdk::RefuseComposite, nullptr};

const sdk::OpTable<OpRow>& OpRows() {
  static constexpr sdk::OpTable<OpRow> kTable(kAllRows);
  return kTable;
}

std::string RefuseWeights(const sdk::GraphView& graph, const rl_op& op,
                          const KernelTable& kernels) {
  return sdk::RefuseWeights(
      graph, op, [&kernels](DType dtype) { return FindWeight(kernels, dtype) != nullptr; });
}

}  // namespace rullama::cpu

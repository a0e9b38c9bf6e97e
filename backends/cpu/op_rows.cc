#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Every primitive and effect, and the composites that run whole here; the core decomposes the
// others without loss.
constexpr const OpRow* kAllRows[] = {
#define RL_PRIMITIVE RL_ROW
#define RL_EFFECT RL_ROW
#define RL_COMPOSITE RL_NO_ROW
#define RL_ROW(Name) &rows::k##Name,
#define RL_NO_ROW(Name)
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) traits(Name)
#include <rullama/abi/ops.def>
#undef RL_ROW
#undef RL_NO_ROW
    &rows::kAdaptedGeGluLinear,
    &rows::kAdaptedLinear,
    &rows::kAttention,
    &rows::kAttentionGradKv,
    &rows::kAttentionGradQ,
    &rows::kAttentionStats,
    &rows::kCrossEntropy,
    &rows::kCrossEntropyGrad,
    &rows::kEntropy,
    &rows::kGeGlu,
    &rows::kGeGluGrad,
    &rows::kGeGluLinear,
    &rows::kLinearCrossEntropy,
    &rows::kMinPMask,
    &rows::kMoeFfn,
    &rows::kResidualNorm,
    &rows::kRmsNorm,
    &rows::kRmsNormGrad,
    &rows::kSoftcap,
    &rows::kSoftmax,
    &rows::kSoftmaxGrad,
    &rows::kTopPMask};

}  // namespace

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

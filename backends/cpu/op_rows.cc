#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Every primitive and effect, and the composites that run whole here; the core decomposes the
// others without loss.
constexpr const OpRow* kAllRows[] = {
#define RL_ROW(Name) &rows::k##Name,
#include <rullama/sdk/primitives.def>
    &rows::kAdaptedGeGluLinear,
    &rows::kAdaptedLinear,
    &rows::kAdapterSum,
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
    &rows::kRowAdaptedGeGluLinear,
    &rows::kRowAdaptedLinear,
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

#include "backends/gpu/op_rows.h"

#include <rullama/sdk/shape.h>

#include <algorithm>

#include "backends/gpu/graph_facts.h"

namespace rullama::gpu {
namespace {

constexpr uint64_t kMaxElements = UINT32_MAX;  // of a value: shaders count in 32 bits

// Every primitive and effect, plain kernels, and the other composites that run whole here; the core
// decomposes the others without loss.
constexpr const OpRow* kAllRows[] = {
#define RL_ROW(Name) &rows::k##Name,
#include <rullama/sdk/primitives.def>
#define RL_PLAIN(Name, name) &rows::k##Name,
#include "backends/gpu/kernels.def"
    &rows::kAdapterSum,
    &rows::kAttention,
    &rows::kAttentionGradKv,
    &rows::kAttentionGradQ,
    &rows::kAttentionStats,
    &rows::kCrossEntropy,
    &rows::kCrossEntropyGrad,
    &rows::kEntropy,
    &rows::kGeGlu,
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

std::string RefuseLargeConstants(const sdk::GraphView& graph, const rl_op& op,
                                 const DeviceLimits& limits) {
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const rl_value* value = graph.input(op, i);
    if (value == nullptr || value->lifetime != RL_LIFETIME_CONSTANT) continue;
    const uint64_t bytes = ShapeOfConstant(*value).bytes();
    if (bytes <= limits.max_allocation_bytes) continue;
    return "a weight of " + std::to_string(bytes) + " bytes; one allocation has at most " +
           std::to_string(limits.max_allocation_bytes);
  }
  return {};
}

std::string RefuseShape(const sdk::GraphView& graph, const rl_value& value) {
  uint64_t elements = 1;
  for (uint32_t axis = 0; axis < value.rank; ++axis) {
    const rl_dim& dim = value.dims[axis];
    if (axis > 0 && (dim.t != 0 || dim.r != 0)) return "an inner dimension depends on T or R";
    const int64_t max = sdk::DimAt(dim, graph.max_t(), graph.max_r());
    elements *= static_cast<uint64_t>(std::max<int64_t>(max, 1));
  }
  const bool counted =
      value.lifetime != RL_LIFETIME_CONSTANT && value.lifetime != RL_LIFETIME_STATE;
  return counted && elements > kMaxElements ? "more than 2^32 elements" : "";
}

}  // namespace

const sdk::OpTable<OpRow>& OpRows() {
  static constexpr sdk::OpTable<OpRow> kTable(kAllRows);
  return kTable;
}

bool IsPlainType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kI32;
}

std::string RefuseShapes(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits,
                         bool reads_pieces) {
  if (!reads_pieces) {
    if (std::string reason = RefuseLargeConstants(graph, op, limits); !reason.empty()) {
      return reason;
    }
  }
  for (uint32_t i = 0; i < op.input_count; ++i) {
    if (const rl_value* value = graph.input(op, i); value != nullptr) {
      if (std::string reason = RefuseShape(graph, *value); !reason.empty()) return reason;
    }
  }
  for (uint32_t i = 0; i < op.result_count; ++i) {
    std::string reason = RefuseShape(graph, graph.result(op, i));
    if (!reason.empty()) return reason;
  }
  return {};
}

std::string RefusePlain(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits) {
  if (std::string reason = RefuseShapes(graph, op, limits); !reason.empty()) return reason;
  for (uint32_t i = 0; i < op.input_count; ++i) {
    const rl_value* value = graph.input(op, i);
    if (value == nullptr) continue;
    if (value->lifetime == RL_LIFETIME_CONSTANT && !ShapeOfConstant(*value).contiguous()) {
      return "a constant of several rows, which are padded";
    }
    if (!IsPlainType(TypeOf(*value))) return "type " + std::string(NameOf(TypeOf(*value)));
  }
  return {};
}

std::string RefuseWeights(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits,
                          bool reads_pieces) {
  std::string reason = RefuseShapes(graph, op, limits, reads_pieces);
  if (reason.empty()) reason = sdk::RefuseWeights(graph, op, IsMatrixType);
  if (!reason.empty() || limits.has_kernels_for == nullptr) return reason;
  reason = sdk::RefuseWeights(graph, op, limits.has_kernels_for);
  // conformance.json knows this text.
  return reason.empty() ? "" : reason + ", for which this build of the plugin has no kernels";
}

}  // namespace rullama::gpu

// causal_conv1d and local_attention, which towers of sound have.
#include <rullama/sdk/operands.h>

#include "backends/gpu/graph_facts.h"
#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kConvolutionThreads = 256;

uint64_t GroupsFor(int64_t elements) {
  return CeilDiv(static_cast<uint64_t>(elements), kConvolutionThreads);
}

void CausalConv1d(PlanBuilder& plan) {
  const rl_value& x = plan.Input(operands::CausalConv1d::x);
  const rl_value& weight = plan.Input(operands::CausalConv1d::weight);
  // The rows of constants are padded.
  const uint64_t pitch = weight.lifetime == RL_LIFETIME_CONSTANT
                             ? ShapeOfConstant(weight).stride / sizeof(float)
                             : static_cast<uint64_t>(Last(weight));
  DispatchBuilder(plan, kernels::CausalConv{.threads = kConvolutionThreads},
                  {.x = plan.InputIndex(operands::CausalConv1d::x),
                   .weight = plan.InputIndex(operands::CausalConv1d::weight),
                   .y = plan.ResultIndex(),
                   .rows = x.dims[0],
                   .n = Last(x),
                   .taps = Last(weight),
                   .pitch = pitch})
      .Emit(GroupsFor(plan.MaxRows(x) * Last(x)));
}

void LocalAttention(PlanBuilder& plan) {
  using operands::LocalAttention;
  const rl_value& q = plan.Input(LocalAttention::q);
  const int64_t heads = q.dims[1].constant;
  const int64_t window = plan.Input(LocalAttention::rel).dims[0].constant;
  const int64_t head_rows = plan.MaxRows(q) * heads;
  const Scratch weights =
      plan.scratch().New(static_cast<uint64_t>(head_rows * window) * sizeof(float));
  DispatchBuilder(plan, kernels::LocalWeights{.threads = kConvolutionThreads},
                  {.q = plan.InputIndex(LocalAttention::q),
                   .k = plan.InputIndex(LocalAttention::k),
                   .rel = plan.InputIndex(LocalAttention::rel),
                   .weights = weights,
                   .rows = q.dims[0],
                   .heads = heads,
                   .dim = Last(q),
                   .window = window,
                   .cap = plan.attrs<rl_local_attention_attrs>().cap})
      .Emit(GroupsFor(head_rows));
  DispatchBuilder(plan, kernels::LocalMix{.threads = kConvolutionThreads},
                  {.weights = weights,
                   .v = plan.InputIndex(LocalAttention::v),
                   .y = plan.ResultIndex(),
                   .rows = q.dims[0],
                   .heads = heads,
                   .dim = Last(q),
                   .window = window})
      .Emit(GroupsFor(head_rows * Last(q)));
}

std::string RefuseCausalConv1d(const sdk::GraphView& graph, const rl_op& op,
                               const DeviceLimits& limits) {
  return RefuseShapes(graph, op, limits);
}

}  // namespace

const OpRow rows::kCausalConv1d = {RL_OP_causal_conv1d, RefuseCausalConv1d, CausalConv1d};
const OpRow rows::kLocalAttention = {RL_OP_local_attention, RefusePlain, LocalAttention};

}  // namespace rullama::gpu

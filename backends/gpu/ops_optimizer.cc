// Gradients of parameters and the steps of AdamW, on states.
#include <rullama/sdk/operands.h>

#include <cstdint>
#include <string>

#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

// The product of a transposed and b, whose terms are the rows of both.
void GradAccumulate(PlanBuilder& plan) {
  using operands::GradAccumulate;
  const rl_value& a = plan.Input(GradAccumulate::a);
  const rl_value& g = plan.Input(GradAccumulate::g);
  EmitMatMulPlain(plan,
                  {.a = plan.InputIndex(GradAccumulate::a),
                   .b = plan.InputIndex(GradAccumulate::b),
                   .y = plan.InputIndex(GradAccumulate::g),
                   .rows = g.dims[0],
                   .terms = a.dims[0],
                   .columns = g.dims[1].constant,
                   .a_row = 1,
                   .a_term = g.dims[0].constant,
                   .b_term = g.dims[1].constant,
                   .b_column = 1,
                   .factor = plan.attrs<rl_grad_accumulate_attrs>().factor},
                  /*adds=*/true);
}

void AdamW(PlanBuilder& plan) {
  using operands::AdamW;
  constexpr uint32_t kThreads = 256;
  const auto attrs = plan.attrs<rl_adamw_attrs>();
  const rl_value& p = plan.Input(AdamW::p);
  const int64_t count = p.dims[0].constant * RowElements(p);
  DispatchBuilder(plan, kernels::AdamW{.threads = kThreads},
                  {.p = plan.InputIndex(AdamW::p),
                   .m = plan.InputIndex(AdamW::m),
                   .v = plan.InputIndex(AdamW::v),
                   .g = plan.InputIndex(AdamW::g),
                   .lr = plan.InputIndex(AdamW::lr),
                   .m_correction = plan.InputIndex(AdamW::m_correction),
                   .v_correction = plan.InputIndex(AdamW::v_correction),
                   .g_factor = plan.InputIndex(AdamW::g_factor),
                   .count = count,
                   .m_rate = attrs.m_rate,
                   .v_rate = attrs.v_rate,
                   .eps = attrs.eps,
                   .weight_decay = attrs.weight_decay})
      .Emit(CeilDiv(static_cast<uint64_t>(count), kThreads));
}

std::string RefuseLargeState(const sdk::GraphView& graph, const rl_op& op,
                             const DeviceLimits& limits) {
  const rl_value& state = *graph.input(op, 0);
  const auto elements = static_cast<uint64_t>(state.dims[0].constant * RowElements(state));
  if (elements > UINT32_MAX) return "more than 2^32 elements";
  return RefusePlain(graph, op, limits);
}

}  // namespace

const OpRow rows::kGradAccumulate = {RL_OP_grad_accumulate, RefuseLargeState, GradAccumulate};
const OpRow rows::kAdamW = {RL_OP_adamw, RefuseLargeState, AdamW};

}  // namespace rullama::gpu

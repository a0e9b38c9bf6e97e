// adapter_sum: what the adapters of each row add to a product.
#include <rullama/sdk/operands.h>
#include <rullama/sdk/slots.h>

#include <cstdint>
#include <string>

#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

// The sizes that both dispatches of the op have.
struct AdapterSizes {
  rl_dim rows;
  int64_t places, count, rank, terms;
};
AdapterSizes AdapterSizesOf(const PlanBuilder& plan) {
  using In = operands::AdapterSum;
  constexpr uint64_t kTerms = 8;  // that adapter_add reads at a time
  const rl_value& a = plan.Input(In::a);
  const int64_t rank = a.dims[1].constant;
  return {.rows = plan.Input(In::x).dims[0],
          .places = Last(plan.Input(In::ids)),
          .count = a.dims[0].constant,
          .rank = rank,
          .terms = static_cast<int64_t>(RoundUp(static_cast<uint64_t>(rank), kTerms))};
}

void EmitAdapterInner(PlanBuilder& plan, const AdapterSizes& sizes, const Scratch& inner) {
  using In = operands::AdapterSum;
  const DeviceWeight& a = PlanBuilder::WeightOf(plan.Input(In::a));
  const bool has_few_rows = plan.Decisive(sizes.rows) <= sdk::kFewRows;
  DispatchBuilder(plan, kernels::AdapterInner{.threads = plan.target().Threads(kPrologueThreads)},
                  {.x = plan.InputIndex(In::x),
                   .a = a.address(),
                   .ids = plan.InputIndex(In::ids),
                   .factors = plan.InputIndex(In::factors),
                   .y = inner,
                   .rows = sizes.rows,
                   .k = Last(plan.Input(In::x)),
                   .places = sizes.places,
                   .count = sizes.count,
                   .rank = sizes.rank,
                   .terms = sizes.terms,
                   .stride = a.shape().stride,
                   .op = plan.op_index() + 1})
      .Emit(has_few_rows ? static_cast<uint64_t>(sizes.terms) : 1,
            static_cast<uint64_t>(plan.Max(sizes.rows) * sizes.places));
}

void EmitAdapterAdd(PlanBuilder& plan, const AdapterSizes& sizes, const Scratch& inner) {
  using In = operands::AdapterSum;
  using Kernel = kernels::AdapterAdd;
  const DeviceWeight& b = PlanBuilder::WeightOf(plan.Input(In::b));
  const auto n = static_cast<uint64_t>(Last(plan.Result()));
  const uint64_t blocks = CeilDiv(static_cast<uint64_t>(plan.Max(sizes.rows)), Kernel::kRows);
  DispatchBuilder(plan, Kernel{.threads = kTileThreads},
                  {.base = plan.InputIndex(In::base),
                   .inner = inner,
                   .b = b.address(),
                   .ids = plan.InputIndex(In::ids),
                   .factors = plan.InputIndex(In::factors),
                   .gate = plan.node().epilogue.gate,
                   .y = plan.StoredIndex(),
                   .rows = sizes.rows,
                   .n = n,
                   .places = sizes.places,
                   .count = sizes.count,
                   .terms = sizes.terms,
                   .stride = b.shape().stride})
      .Emit(CeilDiv(blocks * n, kTileThreads));
}

void AdapterSum(PlanBuilder& plan) {
  const AdapterSizes sizes = AdapterSizesOf(plan);
  const Scratch inner = plan.scratch().Take(
      static_cast<uint64_t>(plan.Max(sizes.rows) * sizes.places * sizes.terms) * sizeof(float));
  EmitAdapterInner(plan, sizes, inner);
  EmitAdapterAdd(plan, sizes, inner);
  plan.scratch().GiveBack(inner);
}

std::string RefuseAdapterSum(const sdk::GraphView& graph, const rl_op& op,
                             const DeviceLimits& limits) {
  return RefuseWeights(graph, op, limits);
}

}  // namespace

const OpRow rows::kAdapterSum = {RL_OP_adapter_sum, RefuseAdapterSum, AdapterSum};

}  // namespace rullama::gpu

// linear_cross_entropy: a model's head and its loss. Chunks of rows follow one another, so that the
// logits of one of them exist at a time.
#include <rullama/sdk/operands.h>

#include <algorithm>

#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"

namespace rullama::gpu {
namespace {

// The rows of a tile on matrix units: 134 MB of logits for a vocabulary of 262,144.
constexpr int64_t kChunkRows = 128;

// Rows [first, first + count) of a value of `columns` f32 columns.
Operand RowsOf(PlanBuilder& plan, uint32_t value, int64_t columns, int64_t first, int64_t count) {
  const auto row_bytes = static_cast<uint64_t>(columns) * sizeof(float);
  return {.value = value,
          .scratch = {plan.addresses().AddressOf(value) + static_cast<uint64_t>(first) * row_bytes,
                      static_cast<uint64_t>(count) * row_bytes}};
}

// Rows [first, first + count) at most, `rows` in a step; `logits` has room for them.
void EmitRows(PlanBuilder& plan, const Scratch& logits, const rl_dim& rows, int64_t first,
              int64_t count) {
  using In = operands::LinearCrossEntropy;
  Product product = DenseProduct(plan, plan.InputIndex(In::weight), rows);
  const int64_t classes = product.n, width = Last(plan.Input(In::x));
  EmitProduct(
      plan, product,
      {.x = RowsOf(plan, plan.InputIndex(In::x), width, first, count), .y = {.scratch = logits}});
  DispatchBuilder(
      plan, kernels::Loss{.threads = ThreadsOfRow(plan.target(), classes), .op = LossOp::kHead},
      {.x = logits,
       .targets = RowsOf(plan, plan.InputIndex(In::targets), 1, first, count),
       .factor = plan.InputIndex(In::factor),
       .y = logits,
       .loss = RowsOf(plan, plan.ResultIndex(0), 1, first, count),
       .rows = rows,
       .columns = classes,
       .cap = plan.attrs<rl_linear_cross_entropy_attrs>().cap})
      .Emit(static_cast<uint64_t>(count));
  product.n = width;
  EmitStored(
      plan, product,
      {.x = {.scratch = logits}, .y = RowsOf(plan, plan.ResultIndex(1), width, first, count)});
}

void EmitChunks(PlanBuilder& plan, const Scratch& logits, const rl_dim& rows, int64_t max_rows) {
  constexpr uint64_t kStepBytes = 16;
  constexpr rl_dim kRowsOfChunk = {0, 1, 0};
  const auto chunks = CeilDiv(static_cast<uint64_t>(max_rows), kChunkRows);
  const Scratch steps = plan.scratch().New(chunks * kStepBytes);
  DispatchBuilder(plan, kernels::RowChunks{.threads = 64},
                  {.steps = steps, .rows = rows, .size = kChunkRows, .chunks = chunks})
      .Emit(1);
  for (uint64_t i = 0; i < chunks; ++i) {
    const RowChunk chunk(plan, {steps.address + i * kStepBytes, kStepBytes}, kChunkRows);
    const auto first = static_cast<int64_t>(i) * kChunkRows;
    EmitRows(plan, logits, kRowsOfChunk, first, std::min(kChunkRows, max_rows - first));
  }
}

void LinearCrossEntropy(PlanBuilder& plan) {
  using In = operands::LinearCrossEntropy;
  const rl_value& x = plan.Input(In::x);
  const int64_t max_rows = plan.MaxRows(x), most = std::min(max_rows, kChunkRows);
  const int64_t classes = plan.Input(In::weight).dims[0].constant;
  const Scratch logits = plan.scratch().Take(static_cast<uint64_t>(most * classes) * sizeof(float));
  if (max_rows <= kChunkRows) {
    EmitRows(plan, logits, x.dims[0], 0, max_rows);
  } else {
    EmitChunks(plan, logits, x.dims[0], max_rows);
  }
  plan.scratch().GiveBack(logits);
}

std::string RefuseHead(const sdk::GraphView& graph, const rl_op& op, const DeviceLimits& limits) {
  return RefuseWeights(graph, op, limits, /*reads_pieces=*/true);
}

}  // namespace

const OpRow rows::kLinearCrossEntropy = {RL_OP_linear_cross_entropy, RefuseHead,
                                         LinearCrossEntropy};

}  // namespace rullama::gpu

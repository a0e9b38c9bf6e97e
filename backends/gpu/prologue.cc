#include "backends/gpu/prologue.h"

#include <algorithm>

namespace rullama::gpu {
namespace {

// What lanes read at a time: rows end with a whole one.
constexpr int64_t kTerms = 32;

bool IsProductOf(const PlanBuilder& plan, uint32_t op_index, uint32_t value) {
  const rl_op& op = plan.graph().op(op_index);
  if (op.inputs[0] != value) return false;
  return op.kind == RL_OP_geglu_linear ||
         (op.kind == RL_OP_matmul &&
          sdk::GraphView::attrs<rl_matmul_attrs>(op).transpose_weight != 0);
}

// Whether a value is one row that a workgroup can hold.
bool IsShortRow(const PlanBuilder& plan, uint32_t value) {
  const rl_value& row = plan.graph().value(value);
  return plan.graph().max_t() == 1 && plan.MostRows(row) <= 1 && RowElements(row) == Last(row) &&
         Last(row) % kTerms == 0 && Last(row) <= plan.tuning().most_prologue;
}

// Whether products alone read a value, which then need not exist.
bool OnlyProductsRead(const PlanBuilder& plan, uint32_t value) {
  const std::vector<uint32_t>& readers = plan.ReadersOf(value);
  return plan.IsPrivate(value) && IsShortRow(plan, value) && !readers.empty() &&
         std::ranges::all_of(readers,
                             [&](uint32_t reader) { return IsProductOf(plan, reader, value); });
}

void SetNorm(Prologue& prologue, const rl_op& norm) {
  prologue.norm = true;
  prologue.norm_weight = norm.input_count > 1 ? norm.inputs[1] : RL_NO_VALUE;
  prologue.norm_eps = sdk::GraphView::attrs<rl_rms_norm_attrs>(norm).eps;
}

// The norm of `sum` that products alone read, or null.
const rl_op* NormOf(const PlanBuilder& plan, uint32_t sum, uint32_t& op_index) {
  for (const uint32_t reader : plan.ReadersOf(sum)) {
    const rl_op& op = plan.graph().op(reader);
    if (op.kind != RL_OP_rms_norm || !OnlyProductsRead(plan, op.results[0])) continue;
    op_index = reader;
    return &op;
  }
  return nullptr;
}

// Whether all ops that read `sum`, but `norm`, come after `product`, which writes it.
bool OthersComeLater(const PlanBuilder& plan, uint32_t sum, uint32_t norm, uint32_t product) {
  return std::ranges::all_of(plan.ReadersOf(sum),
                             [&](uint32_t reader) { return reader == norm || reader >= product; });
}

}  // namespace

bool LeaveNorm(PlanBuilder& plan) {
  if (!OnlyProductsRead(plan, plan.ResultIndex())) return false;
  Prologue prologue;
  prologue.x = plan.InputIndex(0);
  SetNorm(prologue, plan.op());
  for (const uint32_t reader : plan.ReadersOf(plan.ResultIndex()))
    plan.SetPrologue(reader, prologue);
  return true;
}

bool LeaveResidualNorm(PlanBuilder& plan) {
  const uint32_t sum = plan.ResultIndex();
  if (!IsShortRow(plan, sum)) return false;
  Prologue prologue;
  prologue.x = plan.InputIndex(1);
  prologue.residual = plan.InputIndex(0);
  prologue.weight = plan.InputIndex(2);
  prologue.scale = plan.InputIndex(3);
  prologue.eps = plan.attrs<rl_residual_norm_attrs>().eps;
  prologue.sum = sum;
  uint32_t norm_index = RL_NO_OP;
  const rl_op* norm = NormOf(plan, sum, norm_index);
  const std::vector<uint32_t>& readers = plan.ReadersOf(norm ? norm->results[0] : sum);
  if (readers.empty()) return false;
  const uint32_t first = std::ranges::min(readers);
  if (!OthersComeLater(plan, sum, norm_index, first)) return false;
  if (norm == nullptr) {
    if (!IsProductOf(plan, first, sum)) return false;
    plan.SetPrologue(first, prologue);
    return true;
  }
  SetNorm(prologue, *norm);
  plan.Absorb(norm_index);
  for (const uint32_t reader : readers) {
    prologue.sum = reader == first ? sum : RL_NO_VALUE;
    plan.SetPrologue(reader, prologue);
  }
  return true;
}

}  // namespace rullama::gpu

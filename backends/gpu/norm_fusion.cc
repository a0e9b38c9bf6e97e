#include "backends/gpu/norm_fusion.h"

#include <algorithm>

#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

// Elements a lane reads at once. Row lengths must be multiples of it.
constexpr int64_t kTerms = 32;

bool IsProductOf(const PlanBuilder& plan, uint32_t op_index, uint32_t value) {
  const rl_op& op = plan.graph().op(op_index);
  if (op.inputs[0] != value) return false;
  return op.kind == RL_OP_geglu_linear ||
         (op.kind == RL_OP_matmul &&
          sdk::GraphView::attrs<rl_matmul_attrs>(op).transpose_weight != 0);
}

// Includes the first product of the experts: it waits for the router, by which time its operands
// have been written.
bool IsLaterProductOf(const PlanBuilder& plan, uint32_t op_index, uint32_t value) {
  const rl_op& op = plan.graph().op(op_index);
  return op.kind == RL_OP_moe_ffn && op.inputs[0] == value &&
         ExpertsGoByBytes(plan.tuning(), plan.graph(), op);
}

// Whether a value is one row that fits in the shared memory of a workgroup.
bool IsShortRow(const PlanBuilder& plan, uint32_t value) {
  const rl_value& row = plan.graph().value(value);
  return plan.graph().max_t() == 1 && plan.MostRows(row) <= 1 && RowElements(row) == Last(row) &&
         Last(row) % kTerms == 0 && Last(row) <= plan.tuning().most_prologue;
}

// Whether only products read a value, so that it need not be stored.
using IsReader = bool (*)(const PlanBuilder& plan, uint32_t op_index, uint32_t value);
bool OnlyProductsRead(const PlanBuilder& plan, uint32_t value, IsReader is_product) {
  const std::vector<uint32_t>& readers = plan.ReadersOf(value);
  return plan.IsPrivate(value) && IsShortRow(plan, value) && !readers.empty() &&
         std::ranges::all_of(readers,
                             [&](uint32_t reader) { return is_product(plan, reader, value); });
}

void SetNorm(Prologue& prologue, const rl_op& norm) {
  prologue.norm = true;
  prologue.norm_weight = norm.input_count > 1 ? norm.inputs[1] : RL_NO_VALUE;
  prologue.norm_eps = sdk::GraphView::attrs<rl_rms_norm_attrs>(norm).eps;
}

// The norms of `sum` that only products read.
std::vector<uint32_t> NormsOf(const PlanBuilder& plan, uint32_t sum) {
  std::vector<uint32_t> norms;
  for (const uint32_t reader : plan.ReadersOf(sum)) {
    const rl_op& op = plan.graph().op(reader);
    if (op.kind == RL_OP_rms_norm && OnlyProductsRead(plan, op.results[0], IsProductOf)) {
      norms.push_back(reader);
    }
  }
  return norms;
}

// Whether all readers of `sum` other than `norms` come after `product`, which writes it.
bool OthersComeLater(const PlanBuilder& plan, uint32_t sum, const std::vector<uint32_t>& norms,
                     uint32_t product) {
  return std::ranges::all_of(plan.ReadersOf(sum), [&](uint32_t reader) {
    return reader >= product || std::ranges::find(norms, reader) != norms.end();
  });
}

}  // namespace

bool LeaveNorm(PlanBuilder& plan) {
  const uint32_t norm = plan.ResultIndex();
  if (!OnlyProductsRead(plan, norm, IsProductOf) &&
      !OnlyProductsRead(plan, norm, IsLaterProductOf)) {
    return false;
  }
  Prologue prologue;
  prologue.x = plan.InputIndex(0);
  SetNorm(prologue, plan.op());
  for (const uint32_t reader : plan.ReadersOf(norm)) plan.SetPrologue(reader, prologue);
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
  const std::vector<uint32_t> norms = NormsOf(plan, sum);
  if (norms.empty()) {
    const std::vector<uint32_t>& readers = plan.ReadersOf(sum);
    if (readers.empty()) return false;
    const uint32_t first = std::ranges::min(readers);
    if (!IsProductOf(plan, first, sum)) return false;
    plan.SetPrologue(first, prologue);
    return true;
  }
  uint32_t first = RL_NO_OP;
  for (const uint32_t norm : norms) {
    first = std::min(first, std::ranges::min(plan.ReadersOf(plan.graph().op(norm).results[0])));
  }
  if (!OthersComeLater(plan, sum, norms, first)) return false;
  for (const uint32_t norm : norms) {
    const rl_op& op = plan.graph().op(norm);
    SetNorm(prologue, op);
    plan.Absorb(norm);
    for (const uint32_t reader : plan.ReadersOf(op.results[0])) {
      prologue.sum = reader == first ? sum : RL_NO_VALUE;
      plan.SetPrologue(reader, prologue);
    }
  }
  return true;
}

}  // namespace rullama::gpu

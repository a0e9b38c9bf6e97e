// Emission of attention of many rows on matrix units: attention_coop.comp and
// attention_fresh_coop.comp.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>

#include "backends/gpu/attention.h"
#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

// These numbers are also in attention_coop.comp.
constexpr uint32_t kCoopThreads = 256;
constexpr int64_t kMatrix = 16;
constexpr int64_t kMaxCoopQueries = 32;   // of a workgroup
constexpr int64_t kQueryElements = 8192;  // of shared memory for their halves
constexpr int64_t kDimStep = 128;         // of eight subgroups with a matrix each
// Rows from which on the tiles of both have something to do.
constexpr int64_t kMinRows = 16;

// These are also in attention_fresh_coop.comp.
constexpr uint32_t kFreshThreads = 128;
constexpr int64_t kFreshRows = 64;    // of queries, of a workgroup
constexpr int64_t kMaxFreshDim = 96;  // for which keys and values fit shared memory

int64_t QueriesOf(int64_t dim) {
  const auto fit = static_cast<uint64_t>(std::min(kMaxCoopQueries, kQueryElements / dim));
  return static_cast<int64_t>(std::bit_floor(fit));
}

// Heads of keys or values in two parts of f16, each padded to whole matrices.
HalfRows HalfHeads(PlanBuilder& plan, uint32_t input) {
  const rl_value& value = plan.Input(input);
  return EmitToHalf(plan, {.value = plan.InputIndex(input)},
                    {.rows = value.dims[0],
                     .times = value.dims[1].constant,
                     .columns = Last(value),
                     .padded = RoundUp(static_cast<uint64_t>(Last(value)), kMatrix),
                     .parts = 2});
}

}  // namespace

bool AttentionOnMatrixUnits(PlanBuilder& plan) {
  const AttentionShape a = AttentionShapeOf(plan);
  if (!plan.tuning().cooperative_matrix || !plan.tuning().special_kernels ||
      a.type != DType::kF16 || a.rows < kMinRows || a.fresh < kMatrix ||
      a.capacity % kMatrix != 0 || a.dim % kDimStep != 0 || a.dim > kQueryElements / kMatrix) {
    return false;
  }
  const int64_t queries = QueriesOf(a.dim), group = std::min(a.HeadsPerKv(), queries);
  if (queries % group != 0 || a.HeadsPerKv() % group != 0) return false;
  const int64_t query_rows = queries / group;
  DispatchBuilder(plan,
                  kernels::AttentionCoop{.threads = kCoopThreads,
                                         .heads = a.heads,
                                         .kv_heads = a.kv_heads,
                                         .group = group,
                                         .queries = queries,
                                         .dim = a.dim,
                                         .slots = a.slots,
                                         .capacity = a.capacity,
                                         .window = a.window,
                                         .canvas = a.canvas,
                                         .scale = a.scale,
                                         .max_fresh = a.fresh},
                  AttentionArgsOf(plan, plan.ResultIndex()))
      .Emit(1, static_cast<uint64_t>(a.heads / group),
            static_cast<uint64_t>((a.rows + query_rows - 1) / query_rows));
  return true;
}

bool FreshAttentionOnMatrixUnits(PlanBuilder& plan) {
  const AttentionShape a = AttentionShapeOf(plan);
  const bool has_old = plan.InputIndex(operands::Attention::past) != RL_NO_VALUE;
  if (!plan.tuning().cooperative_matrix || !plan.tuning().special_kernels ||
      a.type != DType::kF32 || has_old || !a.canvas || a.rows < kMinRows || a.dim > kMaxFreshDim) {
    return false;
  }
  using operands::Attention;
  const HalfRows keys = HalfHeads(plan, Attention::k_new);
  const HalfRows values = HalfHeads(plan, Attention::v_new);
  DispatchBuilder(plan,
                  kernels::AttentionFreshCoop{.threads = kFreshThreads,
                                              .heads = a.heads,
                                              .kv_heads = a.kv_heads,
                                              .dim = a.dim,
                                              .slots = a.slots,
                                              .scale = a.scale},
                  {.q = plan.InputIndex(Attention::q),
                   .keys = keys.rows,
                   .values = values.rows,
                   .key_units = keys.factors,
                   .value_units = values.factors,
                   .q_slot = plan.InputIndex(Attention::q_slot),
                   .kv_slot = plan.InputIndex(Attention::kv_slot),
                   .y = plan.ResultIndex(),
                   .rows = plan.Input(Attention::q).dims[0],
                   .fresh = plan.Input(Attention::k_new).dims[0]})
      .Emit(1, static_cast<uint64_t>(a.heads),
            static_cast<uint64_t>((a.rows + kFreshRows - 1) / kFreshRows));
  for (const HalfRows& half : {keys, values}) {
    plan.scratch().GiveBack(half.rows);
    plan.scratch().GiveBack(half.factors);
  }
  return true;
}

}  // namespace rullama::gpu

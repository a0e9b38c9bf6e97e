// Emission of attention of many rows on matrix units: attention_half_coop.comp, attention_coop.comp
// and attention_fresh_coop.comp.
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "backends/gpu/attention.h"
#include "backends/gpu/matrix_product.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kCoopThreads = kernels::AttentionCoop::kThreads;
constexpr int64_t kMatrix = kMatrixSide;
constexpr int64_t kMaxCoopQueries = 32;   // of a workgroup
constexpr int64_t kQueryElements = 8192;  // of shared memory for their halves
constexpr int64_t kDimStep = 128;         // of eight subgroups with a matrix each
// Rows from which on the tiles of both have something to do.
constexpr int64_t kMinRows = 16;

constexpr uint32_t kHalfThreads = kernels::AttentionHalfCoop::kThreads;
constexpr int64_t kHalfDim = 256;          // of a head; it may have twice as many
constexpr int64_t kHalfQueryDims = 16384;  // of the queries of a workgroup, in registers
constexpr int64_t kFewHalfQueries = 32;    // of a workgroup, where more would leave a device idle

constexpr uint32_t kFreshThreads = kernels::AttentionFreshCoop::kThreads;
constexpr int64_t kFreshRows = kernels::AttentionFreshCoop::kRows;
constexpr int64_t kMaxFreshDim = 96;  // for which keys and values fit shared memory
// Fewer keys do not average out what a rounding to f16 loses; two parts cost such a step nothing.
constexpr int64_t kHalfFreshRows = 64;

static_assert(FitsMatrixThreads(kCoopThreads) && FitsMatrixThreads(kHalfThreads) &&
              FitsMatrixThreads(kFreshThreads));

int64_t QueriesOf(int64_t dim) {
  const auto fit = static_cast<uint64_t>(std::min(kMaxCoopQueries, kQueryElements / dim));
  return static_cast<int64_t>(std::bit_floor(fit));
}

// Query heads of a workgroup of `queries` queries: the most with which it has whole rows, and whole
// numbers of workgroups share a key/value head.
int64_t GroupIn(int64_t queries, const AttentionShape& a) {
  return std::gcd(a.HeadsPerKv(), queries);
}

// Workgroups in z, of `group` heads and `queries` queries each.
uint64_t GroupsOfRows(const AttentionShape& a, int64_t queries, int64_t group) {
  return CeilDiv(static_cast<uint64_t>(a.rows), static_cast<uint64_t>(queries / group));
}

bool FitsCoop(const Target& target, const AttentionShape& a) {
  return target.can.matrix_units && target.can.special_kernels && a.rows >= kMinRows &&
         a.fresh >= kMatrix && a.dim % kDimStep == 0 && a.dim <= kQueryElements / kMatrix;
}

// Where keys and values come from, and which parts are computed.
struct CoopForm {
  uint32_t parts = 1;
  bool stats = false;
};

void EmitCoop(PlanBuilder& plan, const AttentionShape& a, const CoopForm& form,
              const kernels::AttentionArgs& args) {
  const int64_t queries = QueriesOf(a.dim), group = GroupIn(queries, a);
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
                                         .max_fresh = a.fresh,
                                         .parts = form.parts,
                                         .stats = form.stats},
                  args)
      .Emit(1, static_cast<uint64_t>(a.heads / group), GroupsOfRows(a, queries, group));
}

// Queries of a workgroup of attention_half_coop.comp; 0 if it does not compute this attention.
int64_t HalfQueriesOf(const Target& target, const AttentionShape& a) {
  if (!target.can.matrix_units || !target.can.half_attention || target.prefers.precise_products ||
      a.rows < kMinRows || (a.dim != kHalfDim && a.dim != 2 * kHalfDim)) {
    return 0;
  }
  const int64_t most = kHalfQueryDims / a.dim, all = a.rows * a.heads;
  const bool is_busy = all / most >= int64_t{target.can.multiprocessors};
  return is_busy ? most : std::min(most, kFewHalfQueries);
}

// Whether attention_half_coop may read keys or values of this type.
bool IsHalfOrBlocks(DType type) { return type == DType::kF16 || sdk::IsBlockCacheType(type); }

// `units`: keys and values are of HalfHeads().
void EmitHalf(PlanBuilder& plan, const AttentionShape& a, int64_t queries, bool units,
              const kernels::AttentionArgs& args) {
  const int64_t group = GroupIn(queries, a);
  DispatchBuilder(plan,
                  kernels::AttentionHalfCoop{.threads = kHalfThreads,
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
                                             .key_type = units ? DType::kF16 : a.type,
                                             .value_type = units ? DType::kF16 : a.value_type,
                                             .units = units},
                  args)
      .Emit(1, static_cast<uint64_t>(a.heads / group), GroupsOfRows(a, queries, group));
}

// Heads of keys or values in `parts` parts of f16, each padded to whole matrices.
HalfRows HalfHeads(PlanBuilder& plan, uint32_t value, uint32_t parts) {
  const rl_value& heads = plan.graph().value(value);
  return EmitToHalf(plan, {.value = value},
                    {.rows = heads.dims[0],
                     .times = heads.dims[1].constant,
                     .columns = Last(heads),
                     .padded = RoundUp(static_cast<uint64_t>(Last(heads)), kMatrix),
                     .parts = parts});
}

void GiveBack(PlanBuilder& plan, const HalfRows& half) {
  plan.scratch().GiveBack(half.rows);
  plan.scratch().GiveBack(half.factors);
}

void EmitFreshCoop(PlanBuilder& plan, const AttentionShape& a, const HalfRows& keys,
                   const HalfRows& values) {
  using operands::Attention;
  DispatchBuilder(plan,
                  kernels::AttentionFreshCoop{.threads = kFreshThreads,
                                              .heads = a.heads,
                                              .kv_heads = a.kv_heads,
                                              .dim = a.dim,
                                              .slots = a.slots,
                                              .scale = a.scale,
                                              .parts = keys.parts},
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
}

}  // namespace

bool AttentionOnMatrixUnits(PlanBuilder& plan) {
  const AttentionShape a = AttentionShapeOf(plan);
  const bool is_half = a.type == DType::kF16 && a.value_type == DType::kF16;
  const bool fits = plan.target().can.block_attention
                        ? IsHalfOrBlocks(a.type) && IsHalfOrBlocks(a.value_type)
                        : is_half;
  if (!fits) return false;
  if (const int64_t queries = HalfQueriesOf(plan.target(), a); queries > 0) {
    EmitHalf(plan, a, queries, /*units=*/false, AttentionArgsOf(plan, plan.ResultIndex()));
    return true;
  }
  if (!is_half || a.capacity % kMatrix != 0 || !FitsCoop(plan.target(), a)) return false;
  EmitCoop(plan, a, {}, AttentionArgsOf(plan, plan.ResultIndex()));
  return true;
}

bool FreshAttentionOnMatrixUnits(PlanBuilder& plan) {
  using operands::Attention;
  const AttentionShape a = AttentionShapeOf(plan);
  const Target& target = plan.target();
  const bool has_old = plan.InputIndex(Attention::past) != RL_NO_VALUE;
  const bool narrow = target.can.matrix_units && target.can.special_kernels && a.canvas &&
                      a.rows >= kMinRows && a.dim <= kMaxFreshDim;
  if (a.type != DType::kF32 || a.value_type != DType::kF32 || has_old) return false;
  // one f16 number for each (kHalfFreshRows)
  const bool has_half_keys = !target.prefers.precise_products && a.rows >= kHalfFreshRows;
  const bool sees_later = a.canvas || plan.graph().input(plan.op(), Attention::q_end) != nullptr;
  const int64_t half_queries = has_half_keys && sees_later ? HalfQueriesOf(target, a) : 0;
  if (!narrow && half_queries == 0 && !FitsCoop(target, a)) return false;
  const uint32_t parts = (narrow && has_half_keys) || half_queries > 0 ? 1 : 2;
  const HalfRows keys = HalfHeads(plan, plan.InputIndex(Attention::k_new), parts);
  const HalfRows values = HalfHeads(plan, plan.InputIndex(Attention::v_new), parts);
  if (narrow) {
    EmitFreshCoop(plan, a, keys, values);
  } else {
    kernels::AttentionArgs args = AttentionArgsOf(plan, plan.ResultIndex());
    args.k_new = keys.rows;
    args.v_new = values.rows;
    args.k_state = keys.factors;
    args.v_state = values.factors;
    if (half_queries > 0) {
      EmitHalf(plan, a, half_queries, /*units=*/true, args);
    } else {
      EmitCoop(plan, a, {.parts = parts}, args);
    }
  }
  GiveBack(plan, keys);
  GiveBack(plan, values);
  return true;
}

bool AttentionStatsOnMatrixUnits(PlanBuilder& plan) {
  using In = operands::AttentionStats;
  const auto attrs = plan.attrs<rl_attention_stats_attrs>();
  const rl_value& q = plan.Input(In::q);
  const rl_value& k = plan.Input(In::k_new);
  const AttentionShape a{.rows = plan.MaxRows(q),
                         .fresh = plan.MaxRows(k),
                         .heads = q.dims[1].constant,
                         .kv_heads = k.dims[1].constant,
                         .dim = Last(q),
                         .slots = plan.MaxRows(k),
                         .capacity = kMatrix,
                         .window = attrs.window,
                         .canvas = attrs.mask == RL_MASK_CANVAS,
                         .scale = attrs.scale,
                         .type = TypeOf(k),
                         .value_type = TypeOf(k)};
  if (!FitsCoop(plan.target(), a)) return false;
  const HalfRows keys = HalfHeads(plan, plan.InputIndex(In::k_new), 2);
  EmitCoop(plan, a, {.parts = 2, .stats = true},
           {.q = plan.InputIndex(In::q),
            .k_new = keys.rows,
            .v_new = keys.rows,
            .k_state = keys.factors,
            .v_state = keys.factors,
            .q_pos = plan.InputIndex(In::q_pos),
            .q_slot = plan.InputIndex(In::q_slot),
            .kv_pos = plan.InputIndex(In::kv_pos),
            .kv_slot = plan.InputIndex(In::kv_slot),
            .past = plan.InputIndex(In::q_slot),  // not read: there are no old rows
            .q_end = plan.InputIndex(In::q_pos),
            .y = plan.ResultIndex(),
            .rows = q.dims[0],
            .fresh = k.dims[0]});
  GiveBack(plan, keys);
  return true;
}

}  // namespace rullama::gpu

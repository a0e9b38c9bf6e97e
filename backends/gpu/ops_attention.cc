// attention.
#include <bit>

#include "backends/gpu/attention.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kThreads = 128;             // of attention.comp, which wants no fewer
constexpr int64_t kMostQueries = 16;           // of a workgroup
constexpr int64_t kMostQueriesInSoftware = 4;  // whose compilers are slow with many registers
constexpr int64_t kQueryBytes = 16384;         // of shared memory for them
constexpr int64_t kKeys = 32;                  // of a tile
// Rows of queries up to which keys are split among workgroups: with more there is work for all.
constexpr int64_t kSplitRows = 8;
constexpr int64_t kMostParts = 64;  // room in attention_merge.comp

// Queries of a workgroup.
int64_t MostQueries(const PlanBuilder& plan, int64_t dim) {
  const int64_t most = plan.tuning().software ? kMostQueriesInSoftware : kMostQueries;
  const int64_t fit = kQueryBytes / (dim * static_cast<int64_t>(sizeof(float)));
  return std::clamp<int64_t>(fit, 1, most);
}

int64_t TilesOf(int64_t keys) { return (keys + kKeys - 1) / kKeys; }

void Merge(PlanBuilder& plan, const Scratch& partial, int64_t parts) {
  const rl_value& y = plan.Result();
  const int64_t heads = y.dims[1].constant;
  DispatchBuilder(plan, Shader::kAttentionMerge, {kThreads})
      .Read(partial)
      .Write(plan.ResultIndex())
      .Rows(y.dims[0])
      .U32(heads)
      .U32(Last(y))
      .U32(parts)
      .Go(static_cast<uint64_t>(plan.MostRows(y) * heads));
}

void Attention(PlanBuilder& plan) {
  enum : uint32_t { kQ, kKNew, kVNew, kKState, kVState };
  const auto& a = plan.attrs<rl_attention_attrs>();
  const rl_value& q = plan.Input(kQ);
  const rl_value& state = plan.Input(kKState);
  const int64_t rows = plan.MostRows(q), heads = q.dims[1].constant, dim = Last(q);
  const int64_t kv_heads = state.dims[2].constant, capacity = state.dims[1].constant;
  const int64_t most_queries = MostQueries(plan, dim);
  const int64_t group = GroupOf(heads / kv_heads, most_queries);
  const int64_t query_rows = std::clamp<int64_t>(most_queries / group, 1, rows);
  const int64_t tiles =
      TilesOf(MostOld(capacity, a.window)) + TilesOf(plan.MostRows(plan.Input(kKNew)));
  const bool split = rows <= kSplitRows && !plan.tuning().software;
  const int64_t parts = split ? std::min(tiles, kMostParts) : 1;
  const auto word = [](int64_t n) { return static_cast<uint32_t>(n); };
  DispatchBuilder dispatch(
      plan, Shader::kAttention,
      {kThreads, word(heads), word(kv_heads), word(group), word(query_rows), word(dim), state.dtype,
       word(state.dims[0].constant), word(capacity), word(a.window),
       a.mask == RL_MASK_CANVAS ? 1U : 0U, ConstantOf(a.scale), plan.tuning().software ? 2U : 8U});
  for (uint32_t i = 0; i < 10; ++i) dispatch.Read(plan.InputIndex(i));
  Scratch partial;
  if (parts > 1) {
    partial =
        plan.NewScratch(static_cast<uint64_t>(parts * rows * heads * (dim + 2)) * sizeof(float));
    dispatch.Write(partial);
  } else {
    dispatch.Write(plan.ResultIndex());
  }
  dispatch.Rows(q.dims[0]).Extent(plan.Input(kKNew).dims[0]);
  dispatch.Go(static_cast<uint64_t>(parts), static_cast<uint64_t>(heads / group),
              static_cast<uint64_t>((rows + query_rows - 1) / query_rows));
  if (parts > 1) Merge(plan, partial, parts);
}

}  // namespace

int64_t GroupOf(int64_t heads_per_kv, int64_t most) {
  int64_t group = std::min(heads_per_kv, most);
  while (heads_per_kv % group != 0) --group;
  return group;
}

int64_t MostOld(int64_t capacity, int64_t window) {
  return window > 0 ? std::min(window, capacity) : capacity;
}

bool CompileAttention(PlanBuilder& plan) {
  if (plan.op().kind != RL_OP_attention) return false;
  if (!AttentionOfOneRow(plan) && !AttentionOnMatrixUnits(plan)) Attention(plan);
  return true;
}

}  // namespace rullama::gpu

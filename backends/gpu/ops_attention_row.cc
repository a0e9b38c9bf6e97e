// attention of one row.
#include <algorithm>
#include <bit>

#include "backends/gpu/attention.h"
#include "backends/gpu/head_fusion.h"

namespace rullama::gpu {
namespace {

// Few, so that each tile of keys finds enough workgroups.
constexpr int64_t kMostQueries = 2;  // of a workgroup
constexpr uint32_t kSplit = 16;      // invocations that share a key
constexpr int64_t kMostParts = 64;   // room in attention_row.comp

// As attention_row.comp reads it.
struct HeadsRecord {
  DeviceAddress x, weight, pos, rates;
  float eps;
  uint32_t half_rot;
};

// Notes what heads are made from; those that are not made are null.
HeadsRecord RecordOf(PlanBuilder& plan, DispatchBuilder& dispatch, const Heads& heads) {
  dispatch.Reads(heads.x).Reads(heads.pos);
  return {plan.AddressOf(heads.x),
          plan.AddressOf(heads.weight),
          plan.AddressOf(heads.pos),
          heads.rates,
          heads.eps,
          heads.half_rot};
}

}  // namespace

bool AttentionOfOneRow(PlanBuilder& plan) {
  if (!plan.tuning().special_kernels || !IsOneRow(plan, plan.op())) return false;
  enum : uint32_t { kQ, kKNew, kVNew, kKState, kVState, kQPos, kQSlot, kKvPos, kKvSlot, kPast };
  const auto& a = plan.attrs<rl_attention_attrs>();
  const Tuning& tuning = plan.tuning();
  const rl_value& q = plan.Input(kQ);
  const rl_value& state = plan.Input(kKState);
  const int64_t heads = q.dims[1].constant, dim = Last(q);
  const int64_t kv_heads = state.dims[2].constant, capacity = state.dims[1].constant;
  const int64_t group = GroupOf(heads / kv_heads, kMostQueries);
  const uint32_t threads = OneRowThreads(tuning);
  const uint32_t split = std::min(std::bit_floor(tuning.subgroup_size), kSplit);
  const int64_t keys = threads / split;
  const int64_t tiles = (MostOld(capacity, a.window) + keys) / keys;  // the fresh one as well
  const int64_t parts =
      std::clamp<int64_t>(tuning.few_groups / (heads / group), 1, std::min(tiles, kMostParts));
  const auto word = [](int64_t n) { return static_cast<uint32_t>(n); };
  DispatchBuilder dispatch(plan, Shader::kAttentionRow,
                           {threads, word(heads), word(kv_heads), word(group), word(dim),
                            state.dtype, word(state.dims[0].constant), word(capacity),
                            word(a.window), a.mask == RL_MASK_CANVAS ? 1U : 0U, ConstantOf(a.scale),
                            split, word(std::min(threads / (dim / 4), keys))});
  for (const uint32_t i : {kQPos, kQSlot, kKvPos, kKvSlot, kPast})
    dispatch.Read(plan.InputIndex(i));
  HeadsRecord record[3] = {};
  const uint32_t queries = plan.InputIndex(kQ);
  record[kQ] = RecordOf(plan, dispatch, plan.TakeHeads(queries).value_or(Heads{.x = queries}));
  for (const uint32_t i : {kKNew, kVNew}) {
    const uint32_t fresh = plan.InputIndex(i);
    const std::optional<Heads> from = plan.TakeHeads(fresh);
    if (from) {
      record[i] = RecordOf(plan, dispatch, *from);
      dispatch.Write(fresh);
    } else {
      dispatch.Read(fresh);
    }
  }
  const auto rows = static_cast<uint64_t>(parts * heads);
  const std::vector<uint32_t> none(static_cast<size_t>(heads / group));
  dispatch.Read(plan.InputIndex(kKState))
      .Read(plan.InputIndex(kVState))
      .Write(plan.ResultIndex())
      .Pointer(plan.NewScratch(rows * static_cast<uint64_t>(dim + 4) * sizeof(float)).address)
      .Pointer(plan.Constant(std::as_bytes(std::span(none))))
      .Record(std::as_bytes(std::span(record)), {0, 8, 16, 24, 40, 48, 56, 64, 80, 88, 96, 104})
      .Rows(q.dims[0])
      .Go(static_cast<uint64_t>(parts), static_cast<uint64_t>(heads / group));
  return true;
}

}  // namespace rullama::gpu

// Attention, its parts and its derivatives.
#include <rullama/sdk/cache_rows.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {
namespace {

// k_new/v_new [t, kv_heads, dim] and, unless it is absent, their state [slots, capacity, kv_heads,
// dim] of the same dtype.
bool WantKeysOrValues(Context& c, size_t fresh_index, size_t state_index) {
  if (!c.WantRank(fresh_index, 3) || !c.WantRank(state_index, 4)) return false;
  const TensorType& fresh = c.operand(fresh_index);
  if (!sdk::IsCacheType(fresh.dtype))
    c.Fail("{} is not a type of keys and values", ToString(fresh));
  if (!c.has(state_index)) return c.ok();
  const TensorType& state = c.operand(state_index);
  return c.WantType(state_index,
                    {fresh.dtype, {state.dim(0), state.dim(1), fresh.dim(1), fresh.dim(2)}});
}

// The dims of another operand; values may have another type than keys.
void WantShapeOf(Context& c, size_t index, size_t other) {
  TensorType expected = c.operand(other);
  expected.dtype = c.operand(index).dtype;
  c.WantType(index, expected);
}

// Cached and fresh rows together.
Dim ColumnsOf(const Context& c, size_t fresh_index, size_t state_index) {
  const Dim& rows = c.operand(fresh_index).rows();
  const int64_t capacity = c.has(state_index) ? c.operand(state_index).dim(1).constant : 0;
  return {capacity + rows.constant, rows.t, rows.r};
}

bool WantTogether(Context& c, std::string_view names, std::initializer_list<size_t> operands) {
  const auto present = std::ranges::count_if(operands, [&](size_t i) { return c.has(i); });
  if (present == 0 || static_cast<size_t>(present) == operands.size()) return true;
  c.Fail("{} of {} are present, expected all or none", present, names);
  return false;
}

// q [rows, heads, dim] over kv_heads heads of the same dim.
bool WantQueries(Context& c, size_t q_index, const TensorType& k) {
  if (!c.WantDType(q_index, DType::kF32) || !c.WantRank(q_index, 3)) return false;
  const TensorType& q = c.operand(q_index);
  const bool constant = q.dim(1).IsConstant() && k.dim(1).IsConstant();
  if (!constant || q.dim(2) != k.dim(2) || k.dim(1).constant < 1 ||
      q.dim(1).constant % k.dim(1).constant != 0) {
    c.Fail("queries {} do not fit keys {}", ToString(q), ToString(k));
    return false;
  }
  return true;
}

bool WantMask(Context& c, int32_t mask, int64_t window, float scale) {
  WantEnumerator(c, "rl_mask", mask);
  if (window < 0) c.Fail("window is {}, expected >= 0", window);
  if (!std::isfinite(scale)) c.Fail("scale is not finite");
  return c.ok();
}

// Positions and slots of the rows of queries and keys.
template <typename In>
void WantRows(Context& c, const Dim& q_rows, const Dim& kv_rows) {
  c.WantIndex(In::q_pos, q_rows);
  c.WantIndex(In::q_slot, q_rows);
  c.WantIndex(In::kv_pos, kv_rows);
  c.WantIndex(In::kv_slot, kv_rows);
}

// The last positions that queries see, which only the causal mask has.
void WantLastVisible(Context& c, size_t q_end, const Dim& q_rows, int32_t mask) {
  if (!c.has(q_end)) return;
  if (mask != RL_MASK_CAUSAL) c.Fail("q_end goes with mask causal only");
  c.WantIndex(q_end, q_rows);
}

// The mask, q, k_new and the indices of an op over fresh rows only.
template <typename In, typename Attrs>
bool WantFreshAttention(Context& c) {
  const auto& a = c.attrs<Attrs>();
  WantMask(c, a.mask, a.window, a.scale);
  if (!c.WantRank(In::k_new, 3)) return false;
  const TensorType& k = c.operand(In::k_new);
  if (!IsFloat(k.dtype)) c.Fail("{} is not a float type", ToString(k));
  if (!WantQueries(c, In::q, k)) return false;
  WantRows<In>(c, c.operand(In::q).rows(), k.rows());
  return c.ok();
}

// The operands of a derivative of attention.
template <typename In, typename Attrs>
bool WantAttentionGrad(Context& c) {
  if (!WantFreshAttention<In, Attrs>(c)) return false;
  const TensorType& q = c.operand(In::q);
  c.WantType(In::v_new, c.operand(In::k_new));
  c.WantType(In::y, q);
  c.WantType(In::lse, {DType::kF32, {q.rows(), q.dim(1)}});
  c.WantType(In::dy, q);
  return c.ok();
}

}  // namespace

Types InferAttention(Context& c) {
  using In = operands::Attention;
  const auto& a = c.attrs<rl_attention_attrs>();
  WantMask(c, a.mask, a.window, a.scale);
  WantTogether(c, "k_state, v_state and past", {In::k_state, In::v_state, In::past});
  if (!WantKeysOrValues(c, In::k_new, In::k_state) ||
      !WantKeysOrValues(c, In::v_new, In::v_state)) {
    return {};
  }
  WantShapeOf(c, In::v_new, In::k_new);
  if (!c.ok() || !WantQueries(c, In::q, c.operand(In::k_new))) return {};
  WantRows<In>(c, c.operand(In::q).rows(), c.operand(In::k_new).rows());
  WantLastVisible(c, In::q_end, c.operand(In::q).rows(), a.mask);
  if (c.has(In::k_state)) {
    WantShapeOf(c, In::v_state, In::k_state);
    c.WantIndex(In::past, c.operand(In::k_state).dim(0));
  }
  return {c.operand(In::q)};
}

Types InferAttentionScores(Context& c) {
  using In = operands::AttentionScores;
  const auto& a = c.attrs<rl_attention_scores_attrs>();
  WantMask(c, a.mask, a.window, a.scale);
  WantTogether(c, "k_state and past", {In::k_state, In::past});
  if (!WantKeysOrValues(c, In::k_new, In::k_state) ||
      !WantQueries(c, In::q, c.operand(In::k_new))) {
    return {};
  }
  const TensorType& q = c.operand(In::q);
  WantRows<In>(c, q.rows(), c.operand(In::k_new).rows());
  WantLastVisible(c, In::q_end, q.rows(), a.mask);
  if (c.ok() && c.has(In::k_state)) c.WantIndex(In::past, c.operand(In::k_state).dim(0));
  return {TensorType(DType::kF32, {q.rows(), q.dim(1), ColumnsOf(c, In::k_new, In::k_state)})};
}

Types InferAttentionMix(Context& c) {
  using In = operands::AttentionMix;
  if (!WantKeysOrValues(c, In::v_new, In::v_state) || !c.WantDType(In::probability, DType::kF32) ||
      !c.WantRank(In::probability, 3)) {
    return {};
  }
  const TensorType& p = c.operand(In::probability);
  const TensorType& v = c.operand(In::v_new);
  c.WantType(In::probability,
             {DType::kF32, {p.rows(), p.dim(1), ColumnsOf(c, In::v_new, In::v_state)}});
  if (!p.dim(1).IsConstant() || v.dim(1).constant < 1 ||
      p.dim(1).constant % v.dim(1).constant != 0) {
    c.Fail("{} heads do not share {} value heads", ToString(p.dim(1)), ToString(v.dim(1)));
  }
  c.WantIndex(In::q_slot, p.rows());
  return {TensorType(DType::kF32, {p.rows(), p.dim(1), v.dim(2)})};
}

Types InferLocalAttention(Context& c) {
  using In = operands::LocalAttention;
  const float cap = c.attrs<rl_local_attention_attrs>().cap;
  if (!std::isfinite(cap) || cap < 0) c.Fail("cap is {}, expected a finite number >= 0", cap);
  for (const auto i : {In::q, In::rel}) {
    if (!c.WantDType(i, DType::kF32) || !c.WantRank(i, 3)) return {};
  }
  const TensorType& q = c.operand(In::q);
  c.WantType(In::k, q);
  c.WantType(In::v, q);
  const Dim& window = c.operand(In::rel).rows();
  c.WantType(In::rel, {DType::kF32, {window, q.dim(1), q.dim(2)}});
  if (!window.IsConstant()) c.Fail("the window {} is not constant", ToString(window));
  return {q};
}

Types InferAttentionStats(Context& c) {
  using In = operands::AttentionStats;
  if (!WantFreshAttention<In, rl_attention_stats_attrs>(c)) return {};
  const TensorType& q = c.operand(In::q);
  return {TensorType(DType::kF32, {q.rows(), q.dim(1)})};
}

Types InferAttentionGradQ(Context& c) {
  using In = operands::AttentionGradQ;
  if (!WantAttentionGrad<In, rl_attention_grad_q_attrs>(c)) return {};
  return {c.operand(In::q)};
}

Types InferAttentionGradKv(Context& c) {
  using In = operands::AttentionGradKv;
  if (!WantAttentionGrad<In, rl_attention_grad_kv_attrs>(c)) return {};
  TensorType keys = c.operand(In::k_new);
  keys.dtype = DType::kF32;
  return {keys, keys};
}

Types InferAttentionMixRows(Context& c) {
  using In = operands::AttentionMixRows;
  const int64_t kv_heads = c.attrs<rl_attention_mix_rows_attrs>().kv_heads;
  for (const auto i : {In::probability, In::x}) {
    if (!c.WantDType(i, DType::kF32) || !c.WantRank(i, 3)) return {};
  }
  const TensorType& p = c.operand(In::probability);
  const TensorType& x = c.operand(In::x);
  c.WantType(In::x, {DType::kF32, {p.rows(), p.dim(1), x.last()}});
  if (!p.dim(1).IsConstant() || kv_heads < 1 || p.dim(1).constant % kv_heads != 0) {
    c.Fail("{} heads do not share {} kv heads", ToString(p.dim(1)), kv_heads);
  }
  return {TensorType(DType::kF32, {p.last(), kv_heads, x.last()})};
}

}  // namespace rullama::infer_internal

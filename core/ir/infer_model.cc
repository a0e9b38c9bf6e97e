// Contraction, normalisation, activation, attention and the ops of Gemma.
#include <cmath>

#include "core/ir/infer_context.h"

namespace rullama::infer_internal {

Types InferMatMul(Context& c) {
  using In = operands::MatMul;
  const int32_t transpose = c.attrs<rl_matmul_attrs>().transpose_weight;
  if (transpose != 0 && transpose != 1)
    c.Fail("transpose_weight is {}, expected 0 or 1", transpose);
  if (!c.WantMatrix(In::x)) return {};
  const auto n = WantWeight(c, In::weight, c.operand(In::x).last(), transpose == 1);
  if (!n) return {};
  return {TensorType(DType::kF32, {c.operand(In::x).rows(), *n})};
}

Types InferRmsNorm(Context& c) {
  using In = operands::RmsNorm;
  WantEps(c, c.attrs<rl_rms_norm_attrs>().eps);
  c.WantVector(In::weight, c.operand(In::x).last());
  return InferRowwise(c);
}

Types InferSoftcap(Context& c) {
  using In = operands::Softcap;
  const float cap = c.attrs<rl_softcap_attrs>().cap;
  if (!std::isfinite(cap) || cap <= 0) c.Fail("cap is {}, expected a finite number > 0", cap);
  c.WantDType(In::x, DType::kF32);
  return {c.operand(In::x)};
}

Types InferGeGlu(Context& c) {
  using In = operands::GeGlu;
  c.WantDType(In::gate, DType::kF32);
  c.WantType(In::up, c.operand(In::gate));
  return {c.operand(In::gate)};
}

Types InferGeGluLinear(Context& c) {
  using In = operands::GeGluLinear;
  if (!c.WantMatrix(In::x)) return {};
  const TensorType& x = c.operand(In::x);
  const auto gate = WantWeight(c, In::gate_weight, x.last(), true);
  const auto up = WantWeight(c, In::up_weight, x.last(), true);
  if (!gate || !up) return {};
  if (*gate != *up) {
    c.Fail("gate_weight has {} rows, up_weight {}", ToString(*gate), ToString(*up));
  }
  return {TensorType(DType::kF32, {x.rows(), *gate})};
}

Types InferResidualNorm(Context& c) {
  using In = operands::ResidualNorm;
  WantEps(c, c.attrs<rl_residual_norm_attrs>().eps);
  if (!c.WantMatrix(In::residual)) return {};
  c.WantType(In::x, c.operand(In::residual));
  c.WantVector(In::weight, c.operand(In::residual).last());
  c.WantVector(In::scale, 1);
  return {c.operand(In::residual)};
}

Types InferRope(Context& c) {
  using In = operands::Rope;
  const auto& a = c.attrs<rl_rope_attrs>();
  if (!c.WantDType(In::x, DType::kF32) || !c.WantRank(In::x, 3)) return {};
  const TensorType& x = c.operand(In::x);
  if (a.n_rot < 2 || a.n_rot % 2 != 0 || !x.last().IsConstant() || a.n_rot > x.last().constant) {
    c.Fail("n_rot = {} is not an even number of 2 to {} dims", a.n_rot, ToString(x.last()));
  }
  if (!std::isfinite(a.theta) || a.theta <= 0) c.Fail("theta = {}, expected > 0", a.theta);
  if (a.inverse != 0 && a.inverse != 1) c.Fail("inverse is {}, expected 0 or 1", a.inverse);
  c.WantIndex(In::pos, x.rows());
  c.WantVector(In::freq_factors, a.n_rot / 2);
  return {x};
}

namespace {

// k_new/v_new [t, kv_heads, dim] and their state [slots, capacity, kv_heads, dim] of the same
// dtype.
bool WantKeysOrValues(Context& c, size_t fresh_index, size_t state_index) {
  if (!c.WantRank(fresh_index, 3) || !c.WantRank(state_index, 4)) return false;
  const TensorType& fresh = c.operand(fresh_index);
  const TensorType& state = c.operand(state_index);
  if (!IsFloat(fresh.dtype)) c.Fail("{} is not a float type", ToString(fresh));
  return c.WantType(state_index,
                    {fresh.dtype, {state.dim(0), state.dim(1), fresh.dim(1), fresh.dim(2)}});
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

}  // namespace

Types InferAttention(Context& c) {
  using In = operands::Attention;
  const auto& a = c.attrs<rl_attention_attrs>();
  WantMask(c, a.mask, a.window, a.scale);
  if (!WantKeysOrValues(c, 1, 3) || !WantKeysOrValues(c, 2, 4)) return {};
  c.WantType(In::v_new, c.operand(In::k_new));
  c.WantType(In::v_state, c.operand(In::k_state));
  if (!WantQueries(c, 0, c.operand(In::k_new))) return {};
  const Dim& q_rows = c.operand(In::q).rows();
  const Dim& kv_rows = c.operand(In::k_new).rows();
  c.WantIndex(In::q_pos, q_rows);
  c.WantIndex(In::q_slot, q_rows);
  c.WantIndex(In::kv_pos, kv_rows);
  c.WantIndex(In::kv_slot, kv_rows);
  c.WantIndex(In::past, c.operand(In::k_state).dim(0));
  return {c.operand(In::q)};
}

Types InferAttentionScores(Context& c) {
  using In = operands::AttentionScores;
  const auto& a = c.attrs<rl_attention_scores_attrs>();
  WantMask(c, a.mask, a.window, a.scale);
  if (!WantKeysOrValues(c, 1, 2) || !WantQueries(c, 0, c.operand(In::k_new))) return {};
  const TensorType& q = c.operand(In::q);
  const Dim& kv_rows = c.operand(In::k_new).rows();
  c.WantIndex(In::q_pos, q.rows());
  c.WantIndex(In::q_slot, q.rows());
  c.WantIndex(In::kv_pos, kv_rows);
  c.WantIndex(In::kv_slot, kv_rows);
  c.WantIndex(In::past, c.operand(In::k_state).dim(0));
  const Dim& capacity = c.operand(In::k_state).dim(1);
  return {TensorType(
      DType::kF32,
      {q.rows(), q.dim(1), Dim(capacity.constant + kv_rows.constant, kv_rows.t, kv_rows.r)})};
}

Types InferAttentionMix(Context& c) {
  using In = operands::AttentionMix;
  if (!WantKeysOrValues(c, 1, 2) || !c.WantDType(In::probability, DType::kF32) ||
      !c.WantRank(In::probability, 3))
    return {};
  const TensorType& p = c.operand(In::probability);
  const TensorType& v = c.operand(In::v_new);
  const Dim& capacity = c.operand(In::v_state).dim(1);
  const Dim columns(capacity.constant + v.rows().constant, v.rows().t, v.rows().r);
  c.WantType(In::probability, {DType::kF32, {p.rows(), p.dim(1), columns}});
  if (!p.dim(1).IsConstant() || v.dim(1).constant < 1 ||
      p.dim(1).constant % v.dim(1).constant != 0) {
    c.Fail("{} heads do not share {} value heads", ToString(p.dim(1)), ToString(v.dim(1)));
  }
  c.WantIndex(In::q_slot, p.rows());
  return {TensorType(DType::kF32, {p.rows(), p.dim(1), v.dim(2)})};
}

Types InferPleInject(Context& c) {
  using In = operands::PleInject;
  WantEps(c, c.attrs<rl_ple_inject_attrs>().eps);
  if (!c.WantMatrix(In::x) || !c.WantMatrix(In::ple)) return {};
  const TensorType& x = c.operand(In::x);
  const TensorType& ple = c.operand(In::ple);
  c.WantType(In::ple, {DType::kF32, {x.rows(), ple.last()}});
  const auto p = WantWeight(c, In::gate_weight, x.last(), true);
  const auto d = WantWeight(c, In::proj_weight, ple.last(), true);
  if (!p || !d) return {};
  if (*p != ple.last() || *d != x.last()) {
    c.Fail("weights {} and {} do not fit x {} and ple {}", ToString(c.operand(In::gate_weight)),
           ToString(c.operand(In::proj_weight)), ToString(x), ToString(ple));
  }
  c.WantVector(In::norm_weight, x.last());
  c.WantVector(In::scale, 1);
  return {x};
}

Types InferSoftEmbed(Context& c) {
  using In = operands::SoftEmbed;
  if (!c.WantMatrix(In::logits)) return {};
  c.WantVector(In::inverse_temperature, 1);
  const auto columns = WantWeight(c, In::table, c.operand(In::logits).last(), false);
  if (!columns) return {};
  return {TensorType(DType::kF32, {c.operand(In::logits).rows(), *columns})};
}

namespace {

// Weights [experts, n, k] of a mixture; n, or nothing after an error.
std::optional<Dim> WantExpertWeight(Context& c, size_t i, const Dim& k) {
  if (!c.WantRank(i, 3)) return std::nullopt;
  const TensorType& weight = c.operand(i);
  for (int axis = 0; axis < weight.rank; ++axis) {
    if (weight.dim(axis).IsConstant() && (axis < 2 || weight.dim(axis) == k)) continue;
    c.Fail("weight {} does not fit {} input columns", ToString(weight), ToString(k));
    return std::nullopt;
  }
  return weight.dim(1);
}

}  // namespace

Types InferGroupedMatMul(Context& c) {
  using In = operands::GroupedMatMul;
  c.WantDType(In::x, DType::kF32);
  if (!c.WantRank(In::experts, 2) || !c.WantDType(In::experts, DType::kI32)) return {};
  const TensorType& x = c.operand(In::x);
  const TensorType& experts = c.operand(In::experts);
  const bool shared = x.rank == 2;
  if (x.rank != 3 && !shared) {
    c.Fail("operand x is {}, expected rank 2 or 3", ToString(x));
    return {};
  }
  if (x.rows() != experts.rows() || (!shared && x.dim(1) != experts.dim(1))) {
    c.Fail("x {} does not fit experts {}", ToString(x), ToString(experts));
  }
  const auto n = WantExpertWeight(c, 1, x.last());
  if (!n) return {};
  return {TensorType(DType::kF32, {x.rows(), experts.dim(1), *n})};
}

Types InferMoeFfn(Context& c) {
  using In = operands::MoeFfn;
  if (!c.WantMatrix(In::x) || !c.WantMatrix(In::weights) || !c.WantRank(In::experts, 2)) return {};
  const TensorType& x = c.operand(In::x);
  const TensorType& weights = c.operand(In::weights);
  c.WantType(In::weights, {DType::kF32, {x.rows(), weights.dim(1)}});
  c.WantType(In::experts, {DType::kI32, {x.rows(), weights.dim(1)}});
  const auto gate = WantExpertWeight(c, 3, x.last());
  if (!gate) return {};
  int64_t inner = gate->constant;
  if (c.has(In::up_weight)) {
    const auto up = WantExpertWeight(c, 4, x.last());
    if (up && *up != *gate) {
      c.Fail("gate_weight has {} rows, up_weight {}", ToString(*gate), ToString(*up));
    }
  } else {
    if (inner % 2 != 0) c.Fail("gate_weight has {} rows, expected gate and up alike", inner);
    inner /= 2;
  }
  const auto down = WantExpertWeight(c, 5, Dim(inner));
  if (!down) return {};
  if (*down != x.last()) {
    c.Fail("down_weight gives {} columns, x has {}", ToString(*down), ToString(x.last()));
  }
  const Dim& count = c.operand(In::gate_weight).dim(0);
  for (const size_t i : {size_t{4}, size_t{5}}) {
    if (c.has(i) && c.operand(i).dim(0) != count) {
      c.Fail("weights of {} and {} experts", ToString(count), ToString(c.operand(i).dim(0)));
    }
  }
  c.WantVector(In::expert_scale, count);
  return {x};
}

}  // namespace rullama::infer_internal

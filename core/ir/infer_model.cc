// Contraction, normalisation, activation, rotation and the ops of Gemma.
#include <bit>
#include <cmath>
#include <cstdint>

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

namespace {

// Adds the matrices of an adapter to WantWeight: `a` [rank, k] and `b` [n, rank].
std::optional<Dim> WantAdaptedWeight(Context& c, size_t weight, size_t a, size_t b, const Dim& k) {
  c.WantDType(a, DType::kF32);
  c.WantDType(b, DType::kF32);
  const auto n = WantWeight(c, weight, k, true);
  const auto rank = WantWeight(c, a, k, true);
  if (!n || !rank) return std::nullopt;
  const auto outputs = WantWeight(c, b, *rank, true);
  if (!outputs) return std::nullopt;
  if (*outputs != *n)
    c.Fail("the adapter has {} rows, the weight {}", ToString(*outputs), ToString(*n));
  return n;
}

}  // namespace

Types InferAdaptedLinear(Context& c) {
  using In = operands::AdaptedLinear;
  if (!c.WantMatrix(In::x)) return {};
  const TensorType& x = c.operand(In::x);
  const auto n = WantAdaptedWeight(c, In::weight, In::a, In::b, x.last());
  if (!n) return {};
  return {TensorType(DType::kF32, {x.rows(), *n})};
}

Types InferAdaptedGeGluLinear(Context& c) {
  using In = operands::AdaptedGeGluLinear;
  if (!c.WantMatrix(In::x)) return {};
  const TensorType& x = c.operand(In::x);
  const auto gate = WantAdaptedWeight(c, In::gate_weight, In::gate_a, In::gate_b, x.last());
  const auto up = WantAdaptedWeight(c, In::up_weight, In::up_a, In::up_b, x.last());
  if (!gate || !up) return {};
  if (*gate != *up) {
    c.Fail("gate_weight has {} rows, up_weight {}", ToString(*gate), ToString(*up));
  }
  return {TensorType(DType::kF32, {x.rows(), *gate})};
}

Types InferRmsNorm(Context& c) {
  using In = operands::RmsNorm;
  WantEps(c, c.attrs<rl_rms_norm_attrs>().eps);
  c.WantVector(In::weight, c.operand(In::x).last());
  return InferRowwise(c);
}

Types InferLayerNorm(Context& c) {
  using In = operands::LayerNorm;
  WantEps(c, c.attrs<rl_layer_norm_attrs>().eps);
  c.WantVector(In::weight, c.operand(In::x).last());
  c.WantVector(In::bias, c.operand(In::x).last());
  return InferRowwise(c);
}

Types InferCausalConv1d(Context& c) {
  using In = operands::CausalConv1d;
  if (!c.WantMatrix(In::x) || !c.WantMatrix(In::weight)) return {};
  const TensorType& weight = c.operand(In::weight);
  if (weight.rows() != c.operand(In::x).last() || !weight.last().IsConstant()) {
    c.Fail("weight {} does not fit {}", ToString(weight), ToString(c.operand(In::x)));
  }
  return {c.operand(In::x)};
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
  if (a.first < 0 || (x.last().IsConstant() && a.first > x.last().constant - a.n_rot)) {
    c.Fail("{} dims from first = {} on do not fit {}", a.n_rot, a.first, ToString(x.last()));
  }
  c.WantIndex(In::pos, x.rows());
  c.WantVector(In::freq_factors, a.n_rot / 2);
  return {x};
}

Types InferRotate(Context& c) {
  using In = operands::Rotate;
  constexpr int64_t kMaxRotated = 1024;
  if (!c.WantDType(In::x, DType::kF32)) return {};
  const TensorType& x = c.operand(In::x);
  const int64_t n = x.last().constant;
  const bool fits = x.rank >= 2 && x.last().IsConstant() && n >= 2 && n <= kMaxRotated &&
                    std::has_single_bit(static_cast<uint64_t>(n));
  if (!fits) {
    c.Fail("the last dimension of {} is not a power of two from 2 to {}", ToString(x), kMaxRotated);
    return {};
  }
  return {x};
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

// Weights [experts, n, k] of a mixture, or [experts, k, n] as stored; n, or nothing after an error.
std::optional<Dim> WantExpertWeight(Context& c, size_t i, const Dim& k, bool as_stored = false) {
  if (!c.WantRank(i, 3)) return std::nullopt;
  const TensorType& weight = c.operand(i);
  const int inner = as_stored ? 1 : 2;
  for (int axis = 0; axis < weight.rank; ++axis) {
    if (weight.dim(axis).IsConstant() && (axis != inner || weight.dim(axis) == k)) continue;
    c.Fail("weight {} does not fit {} input columns", ToString(weight), ToString(k));
    return std::nullopt;
  }
  return weight.dim(as_stored ? 2 : 1);
}

// The adapters of rows: `a` [adapters, rank, k], `b` [adapters, n, rank]; n.
std::optional<Dim> WantRowAdapters(Context& c, size_t a, size_t b, const Dim& k) {
  c.WantDType(a, DType::kF32);
  c.WantDType(b, DType::kF32);
  const auto rank = WantExpertWeight(c, a, k);
  if (!rank) return std::nullopt;
  const auto n = WantExpertWeight(c, b, *rank);
  if (n && c.operand(a).rows() != c.operand(b).rows()) {
    c.Fail("a has {} adapters, b {}", ToString(c.operand(a).rows()), ToString(c.operand(b).rows()));
  }
  return n;
}

// Which adapters each row has: i32 and f32 [rows, places].
void WantPlaces(Context& c, size_t ids, size_t factors, const Dim& rows) {
  if (!c.WantMatrix(factors)) return;
  const Dim& places = c.operand(factors).dim(1);
  c.WantType(factors, {DType::kF32, {rows, places}});
  c.WantType(ids, {DType::kI32, {rows, places}});
  if (!places.IsConstant() || places.constant < 1) {
    c.Fail("factors {} have no places", ToString(c.operand(factors)));
  }
}

// Adds the adapters of rows to WantWeight.
std::optional<Dim> WantRowAdaptedWeight(Context& c, size_t weight, size_t a, size_t b,
                                        const Dim& k) {
  const auto n = WantWeight(c, weight, k, true);
  const auto outputs = WantRowAdapters(c, a, b, k);
  if (!n || !outputs) return std::nullopt;
  if (*outputs != *n)
    c.Fail("the adapters have {} rows, the weight {}", ToString(*outputs), ToString(*n));
  return n;
}

}  // namespace

Types InferAdapterSum(Context& c) {
  using In = operands::AdapterSum;
  if (!c.WantMatrix(In::x) || !c.WantMatrix(In::base)) return {};
  const TensorType& x = c.operand(In::x);
  const auto n = WantRowAdapters(c, In::a, In::b, x.last());
  if (!n) return {};
  const TensorType type(DType::kF32, {x.rows(), *n});
  c.WantType(In::base, type);
  WantPlaces(c, In::ids, In::factors, x.rows());
  return {type};
}

Types InferRowAdaptedLinear(Context& c) {
  using In = operands::RowAdaptedLinear;
  if (!c.WantMatrix(In::x)) return {};
  const TensorType& x = c.operand(In::x);
  const auto n = WantRowAdaptedWeight(c, In::weight, In::a, In::b, x.last());
  if (!n) return {};
  WantPlaces(c, In::ids, In::factors, x.rows());
  return {TensorType(DType::kF32, {x.rows(), *n})};
}

Types InferRowAdaptedGeGluLinear(Context& c) {
  using In = operands::RowAdaptedGeGluLinear;
  if (!c.WantMatrix(In::x)) return {};
  const TensorType& x = c.operand(In::x);
  const auto gate = WantRowAdaptedWeight(c, In::gate_weight, In::gate_a, In::gate_b, x.last());
  const auto up = WantRowAdaptedWeight(c, In::up_weight, In::up_a, In::up_b, x.last());
  if (!gate || !up) return {};
  if (*gate != *up) {
    c.Fail("gate_weight has {} rows, up_weight {}", ToString(*gate), ToString(*up));
  }
  const Dim gates = c.operand(In::gate_a).rows(), ups = c.operand(In::up_a).rows();
  if (gates != ups) {
    c.Fail("gate_a has {} adapters, up_a {}", ToString(gates), ToString(ups));
  }
  WantPlaces(c, In::ids, In::factors, x.rows());
  return {TensorType(DType::kF32, {x.rows(), *gate})};
}

Types InferGroupedMatMul(Context& c) {
  using In = operands::GroupedMatMul;
  const int32_t as_stored = c.attrs<rl_grouped_matmul_attrs>().as_stored;
  if (as_stored != 0 && as_stored != 1) c.Fail("as_stored is {}, expected 0 or 1", as_stored);
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
  const auto n = WantExpertWeight(c, In::weight, x.last(), as_stored == 1);
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

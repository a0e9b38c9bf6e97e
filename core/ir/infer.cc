#include "core/ir/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace rullama {
namespace {

using Types = std::vector<TensorType>;

// The operands and attributes of the op being inferred, with the checks that most ops share. A
// check that fails records the first error; infer functions return early where going on would be
// unsafe.
class Context {
 public:
  Context(const OpInfo& info, const OpAttrs& attrs, std::span<const TensorType* const> operands)
      : info_(info), attrs_(attrs), operands_(operands) {}

  [[nodiscard]] const TensorType& operand(size_t i) const { return *operands_[i]; }
  [[nodiscard]] bool has(size_t i) const { return operands_[i] != nullptr; }
  template <typename Attrs>
  [[nodiscard]] const Attrs& attrs() const {
    return *static_cast<const Attrs*>(attrs_.data());
  }
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  [[nodiscard]] Result<Types> Finish(Types types) && {
    if (error_) return tl::unexpected<Error>(*std::move(error_));
    return types;
  }

  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    if (error_) return;
    error_ =
        Error{ErrorKind::kRuntime, "ir.type",
              fmt::format("{}: {}", info_.name, fmt::format(format, std::forward<Args>(args)...))};
  }

  // The operand has the dtype / rank / type; true if so (or absent and optional).
  bool WantDType(size_t i, DType dtype) {
    if (!has(i) || operand(i).dtype == dtype) return true;
    Fail("operand {} is {}, expected {}", info_.operands[i].name, ToString(operand(i)),
         NameOf(dtype));
    return false;
  }
  bool WantRank(size_t i, int rank) {
    if (!has(i) || operand(i).rank == rank) return true;
    Fail("operand {} is {}, expected rank {}", info_.operands[i].name, ToString(operand(i)), rank);
    return false;
  }
  bool WantType(size_t i, const TensorType& type) {
    if (!has(i) || operand(i) == type) return true;
    Fail("operand {} is {}, expected {}", info_.operands[i].name, ToString(operand(i)),
         ToString(type));
    return false;
  }
  bool WantPlain(size_t i) {
    if (!IsBlockType(operand(i).dtype)) return true;
    Fail("operand {} is {}, expected an element type without blocks", info_.operands[i].name,
         ToString(operand(i)));
    return false;
  }
  // i32 [rows].
  bool WantIndex(size_t i, const Dim& rows) { return WantType(i, {DType::kI32, {rows}}); }
  // f32 [n].
  bool WantVector(size_t i, const Dim& n) { return WantType(i, {DType::kF32, {n}}); }
  // f32 of rank 2.
  bool WantMatrix(size_t i) { return WantDType(i, DType::kF32) && WantRank(i, 2); }

 private:
  const OpInfo& info_;
  const OpAttrs& attrs_;
  std::span<const TensorType* const> operands_;
  std::optional<Error> error_;
};

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// ---- structure ----------------------------------------------------------------------------------

Types InferReshape(Context& c) {
  const auto& a = c.attrs<rl_reshape_attrs>();
  const TensorType& x = c.operand(0);
  if (a.rank < 1 || a.rank > kMaxRank) {
    c.Fail("rank {} is outside 1 to {}", a.rank, kMaxRank);
    return {};
  }
  TensorType y = x;
  y.rank = a.rank;
  const std::array<int64_t, 3> inner = {a.d1, a.d2, a.d3};
  int64_t new_elements = 1;
  for (int axis = 1; axis < kMaxRank; ++axis) {
    const int64_t size = inner[static_cast<size_t>(axis - 1)];
    y.dim(axis) = axis < a.rank ? Dim(size) : Dim();
    if (axis >= a.rank) continue;
    if (size < 1 || size > kMaxElements / new_elements) {
      c.Fail("dimension {} of size {} is out of range", axis, size);
      return {};
    }
    new_elements *= size;
  }
  int64_t old_elements = 1;  // CheckType has bounded the product
  for (int axis = 1; axis < x.rank; ++axis) {
    if (!x.dim(axis).IsConstant()) c.Fail("inner dimensions of {} are not constant", ToString(x));
    old_elements *= std::max<int64_t>(x.dim(axis).constant, 1);
  }
  if (old_elements != new_elements) {
    c.Fail("{} elements a row cannot become {}", old_elements, new_elements);
  }
  c.WantPlain(0);
  return {y};
}

bool WantInnerAxis(Context& c, int axis) {
  if (axis >= 1 && axis < c.operand(0).rank) return true;
  c.Fail("axis {} is outside 1 to {}", axis, c.operand(0).rank - 1);
  return false;
}

Types InferSlice(Context& c) {
  const auto& a = c.attrs<rl_slice_attrs>();
  TensorType y = c.operand(0);
  if (!c.WantPlain(0) || !WantInnerAxis(c, a.axis)) return {};
  const Dim& dim = y.dim(a.axis);
  if (!dim.IsConstant() || a.start < 0 || a.size < 1 || a.start > dim.constant - a.size) {
    c.Fail("[{}, +{}) is outside axis {} of {}", a.start, a.size, a.axis, ToString(y));
  }
  y.dim(a.axis) = a.size;
  return {y};
}

Types InferConcat(Context& c) {
  const int axis = c.attrs<rl_concat_attrs>().axis;
  TensorType y = c.operand(0);
  if (!c.WantPlain(0) || !WantInnerAxis(c, axis)) return {};
  const TensorType& b = c.operand(1);
  TensorType expected = y;
  if (b.rank == y.rank) expected.dim(axis) = b.dim(axis);
  if (!c.WantType(1, expected)) return {};
  const Dim& da = y.dim(axis);
  const Dim& db = b.dim(axis);
  y.dim(axis) = Dim(da.constant + db.constant, da.t + db.t, da.r + db.r);
  return {y};
}

Types InferCast(Context& c) {
  TensorType y = c.operand(0);
  const auto* to = FindDType(static_cast<uint32_t>(c.attrs<rl_cast_attrs>().dtype));
  const auto castable = [](DType dtype) { return IsFloat(dtype) || dtype == DType::kI32; };
  if (to == nullptr || !castable(to->dtype) || !castable(y.dtype)) {
    c.Fail("cannot cast {} to {}; f32, f16, bf16 and i32 convert into each other", ToString(y),
           to == nullptr ? "an unknown type" : to->name);
    return {};
  }
  y.dtype = to->dtype;
  return {y};
}

Types InferCopy(Context& c) {
  c.WantPlain(0);
  return {c.operand(0)};
}

Types InferGatherRows(Context& c) {
  const auto& a = c.attrs<rl_gather_rows_attrs>();
  const TensorType& table = c.operand(0);
  if (!c.WantRank(1, 1) || !c.WantDType(1, DType::kI32)) return {};
  TensorType y = table;
  y.dim(0) = c.operand(1).rows();
  const bool is_weight = table.rank == 2 && table.dtype != DType::kI32 && table.last().IsConstant();
  if (!is_weight) {
    if (a.column != 0 || a.columns != 0) c.Fail("columns of {} cannot be chosen", ToString(table));
    c.WantPlain(0);
    return {y};
  }
  const int64_t width = table.last().constant;
  const int64_t block = InfoOf(table.dtype).block_elements;
  const int64_t columns = a.columns == 0 ? width - a.column : a.columns;
  if (a.column < 0 || columns < 1 || a.column > width - columns || a.column % block != 0 ||
      columns % block != 0) {
    c.Fail("columns [{}, +{}) of {} are out of range or not a multiple of {}", a.column, columns,
           ToString(table), block);
  }
  y.dtype = DType::kF32;
  y.dim(1) = columns;
  return {y};
}

Types InferGatherLast(Context& c) {
  const TensorType& x = c.operand(0);
  if (x.dtype != DType::kF32 && x.dtype != DType::kI32) {
    c.Fail("operand x is {}, expected f32 or i32", ToString(x));
  }
  if (!c.WantRank(0, 2) || !c.WantIndex(1, x.rows())) return {};
  return {TensorType(x.dtype, {x.rows()})};
}

// ---- pointwise ----------------------------------------------------------------------------------

bool WantEnumerator(Context& c, std::string_view enum_name, int32_t value) {
  if (!EnumeratorName(enum_name, value).empty()) return true;
  c.Fail("{} is no {}", value, enum_name);
  return false;
}

Types InferUnary(Context& c) {
  WantEnumerator(c, "rl_unary", c.attrs<rl_unary_attrs>().fn);
  c.WantDType(0, DType::kF32);
  return {c.operand(0)};
}

Types InferBinary(Context& c) {
  WantEnumerator(c, "rl_binary", c.attrs<rl_binary_attrs>().fn);
  const TensorType& a = c.operand(0);
  const TensorType& b = c.operand(1);
  if (!c.WantDType(0, DType::kF32) || !c.WantRank(1, a.rank) || !c.WantDType(1, DType::kF32)) {
    return {};
  }
  for (int axis = 0; axis < a.rank; ++axis) {
    const bool broadcast = axis > 0 && b.dim(axis) == Dim(1);
    if (b.dim(axis) != a.dim(axis) && !broadcast) {
      c.Fail("{} does not broadcast to {}", ToString(b), ToString(a));
    }
  }
  return {a};
}

Types InferScale(Context& c) {
  const TensorType& x = c.operand(0);
  c.WantDType(0, DType::kF32);
  if (c.operand(1) == TensorType(DType::kF32, {1})) return {x};
  if (x.rank < 2) c.Fail("operand x is {}, expected rank 2 or more", ToString(x));
  c.WantVector(1, x.last());
  return {x};
}

Types InferAffine(Context& c) {
  c.WantDType(0, DType::kF32);
  return {c.operand(0)};
}

Types InferSelect(Context& c) {
  c.WantDType(0, DType::kF32);
  c.WantType(1, c.operand(0));
  return {c.operand(0)};
}

// ---- reductions and sorting ---------------------------------------------------------------------

Types InferReduce(Context& c) {
  WantEnumerator(c, "rl_reduce", c.attrs<rl_reduce_attrs>().fn);
  TensorType y = c.operand(0);
  c.WantDType(0, DType::kF32);
  if (y.rank < 2) {
    c.Fail("operand x is {}, expected rank 2 or more", ToString(y));
    return {};
  }
  y.dim(y.rank - 1) = 1;
  return {y};
}

Types InferArgMax(Context& c) {
  if (!c.WantMatrix(0)) return {};
  return {TensorType(DType::kI32, {c.operand(0).rows()})};
}

Types InferTopK(Context& c) {
  if (!c.WantMatrix(0)) return {};
  const TensorType& x = c.operand(0);
  const int64_t k = c.attrs<rl_topk_attrs>().k;
  if (!x.last().IsConstant() || k < 1 || k > x.last().constant) {
    c.Fail("k = {} is outside 1 to the {} columns of {}", k, ToString(x.last()), ToString(x));
    return {};
  }
  return {TensorType(DType::kF32, {x.rows(), k}), TensorType(DType::kI32, {x.rows(), k})};
}

Types InferRowwise(Context& c) {
  c.WantDType(0, DType::kF32);
  if (c.operand(0).rank < 2) {
    c.Fail("operand x is {}, expected rank 2 or more", ToString(c.operand(0)));
  }
  return {c.operand(0)};
}

// ---- contraction, normalisation, activation -----------------------------------------------------

// A weight [n, k] (transposed) or [k, n]; n, or nothing after an error.
std::optional<Dim> WantWeight(Context& c, size_t i, const Dim& k, bool transposed) {
  if (!c.WantRank(i, 2)) return std::nullopt;
  const TensorType& weight = c.operand(i);
  const Dim& inner = transposed ? weight.dim(1) : weight.dim(0);
  if (inner != k || !weight.dim(0).IsConstant() || !weight.dim(1).IsConstant()) {
    c.Fail("weight {} does not fit {} input columns", ToString(weight), ToString(k));
    return std::nullopt;
  }
  return transposed ? weight.dim(0) : weight.dim(1);
}

Types InferMatMul(Context& c) {
  const int32_t transpose = c.attrs<rl_matmul_attrs>().transpose_weight;
  if (transpose != 0 && transpose != 1)
    c.Fail("transpose_weight is {}, expected 0 or 1", transpose);
  if (!c.WantMatrix(0)) return {};
  const auto n = WantWeight(c, 1, c.operand(0).last(), transpose == 1);
  if (!n) return {};
  return {TensorType(DType::kF32, {c.operand(0).rows(), *n})};
}

bool WantEps(Context& c, float eps) {
  if (std::isfinite(eps) && eps >= 0) return true;
  c.Fail("eps is {}, expected a finite number >= 0", eps);
  return false;
}

Types InferRmsNorm(Context& c) {
  WantEps(c, c.attrs<rl_rms_norm_attrs>().eps);
  c.WantVector(1, c.operand(0).last());
  return InferRowwise(c);
}

Types InferSoftcap(Context& c) {
  const float cap = c.attrs<rl_softcap_attrs>().cap;
  if (!std::isfinite(cap) || cap <= 0) c.Fail("cap is {}, expected a finite number > 0", cap);
  c.WantDType(0, DType::kF32);
  return {c.operand(0)};
}

Types InferGeGlu(Context& c) {
  c.WantDType(0, DType::kF32);
  c.WantType(1, c.operand(0));
  return {c.operand(0)};
}

Types InferGeGluLinear(Context& c) {
  if (!c.WantMatrix(0)) return {};
  const TensorType& x = c.operand(0);
  const auto gate = WantWeight(c, 1, x.last(), true);
  const auto up = WantWeight(c, 2, x.last(), true);
  if (!gate || !up) return {};
  if (*gate != *up) {
    c.Fail("gate_weight has {} rows, up_weight {}", ToString(*gate), ToString(*up));
  }
  return {TensorType(DType::kF32, {x.rows(), *gate})};
}

Types InferResidualNorm(Context& c) {
  WantEps(c, c.attrs<rl_residual_norm_attrs>().eps);
  if (!c.WantMatrix(0)) return {};
  c.WantType(1, c.operand(0));
  c.WantVector(2, c.operand(0).last());
  c.WantVector(3, 1);
  return {c.operand(0)};
}

// ---- attention and state ------------------------------------------------------------------------

Types InferRope(Context& c) {
  const auto& a = c.attrs<rl_rope_attrs>();
  if (!c.WantDType(0, DType::kF32) || !c.WantRank(0, 3)) return {};
  const TensorType& x = c.operand(0);
  if (a.n_rot < 2 || a.n_rot % 2 != 0 || !x.last().IsConstant() || a.n_rot > x.last().constant) {
    c.Fail("n_rot = {} is not an even number of 2 to {} dims", a.n_rot, ToString(x.last()));
  }
  if (!std::isfinite(a.theta) || a.theta <= 0) c.Fail("theta = {}, expected > 0", a.theta);
  c.WantIndex(1, x.rows());
  c.WantVector(2, a.n_rot / 2);
  return {x};
}

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

Types InferAttention(Context& c) {
  const auto& a = c.attrs<rl_attention_attrs>();
  WantMask(c, a.mask, a.window, a.scale);
  if (!WantKeysOrValues(c, 1, 3) || !WantKeysOrValues(c, 2, 4)) return {};
  c.WantType(2, c.operand(1));
  c.WantType(4, c.operand(3));
  if (!WantQueries(c, 0, c.operand(1))) return {};
  const Dim& q_rows = c.operand(0).rows();
  const Dim& kv_rows = c.operand(1).rows();
  c.WantIndex(5, q_rows);
  c.WantIndex(6, q_rows);
  c.WantIndex(7, kv_rows);
  c.WantIndex(8, kv_rows);
  c.WantIndex(9, c.operand(3).dim(0));
  return {c.operand(0)};
}

Types InferAttentionScores(Context& c) {
  const auto& a = c.attrs<rl_attention_scores_attrs>();
  WantMask(c, a.mask, a.window, a.scale);
  if (!WantKeysOrValues(c, 1, 2) || !WantQueries(c, 0, c.operand(1))) return {};
  const TensorType& q = c.operand(0);
  const Dim& kv_rows = c.operand(1).rows();
  c.WantIndex(3, q.rows());
  c.WantIndex(4, q.rows());
  c.WantIndex(5, kv_rows);
  c.WantIndex(6, kv_rows);
  c.WantIndex(7, c.operand(2).dim(0));
  const Dim& capacity = c.operand(2).dim(1);
  return {TensorType(
      DType::kF32,
      {q.rows(), q.dim(1), Dim(capacity.constant + kv_rows.constant, kv_rows.t, kv_rows.r)})};
}

Types InferAttentionMix(Context& c) {
  if (!WantKeysOrValues(c, 1, 2) || !c.WantDType(0, DType::kF32) || !c.WantRank(0, 3)) return {};
  const TensorType& p = c.operand(0);
  const TensorType& v = c.operand(1);
  const Dim& capacity = c.operand(2).dim(1);
  const Dim columns(capacity.constant + v.rows().constant, v.rows().t, v.rows().r);
  c.WantType(0, {DType::kF32, {p.rows(), p.dim(1), columns}});
  if (!p.dim(1).IsConstant() || v.dim(1).constant < 1 ||
      p.dim(1).constant % v.dim(1).constant != 0) {
    c.Fail("{} heads do not share {} value heads", ToString(p.dim(1)), ToString(v.dim(1)));
  }
  c.WantIndex(3, p.rows());
  return {TensorType(DType::kF32, {p.rows(), p.dim(1), v.dim(2)})};
}

Types InferStateAppend(Context& c) {
  const TensorType& state = c.operand(0);
  const TensorType& rows = c.operand(1);
  if (state.rank < 2 || rows.rank != state.rank - 1) {
    c.Fail("rows {} do not fit state {}", ToString(rows), ToString(state));
    return {};
  }
  TensorType expected = rows;
  expected.dtype = state.dtype;
  for (int axis = 1; axis < rows.rank; ++axis) expected.dim(axis) = state.dim(axis + 1);
  c.WantType(1, expected);
  c.WantIndex(2, rows.rows());
  c.WantIndex(3, rows.rows());
  return {state};
}

// ---- Gemma --------------------------------------------------------------------------------------

Types InferPleInject(Context& c) {
  WantEps(c, c.attrs<rl_ple_inject_attrs>().eps);
  if (!c.WantMatrix(0) || !c.WantMatrix(1)) return {};
  const TensorType& x = c.operand(0);
  const TensorType& ple = c.operand(1);
  c.WantType(1, {DType::kF32, {x.rows(), ple.last()}});
  const auto p = WantWeight(c, 2, x.last(), true);
  const auto d = WantWeight(c, 3, ple.last(), true);
  if (!p || !d) return {};
  if (*p != ple.last() || *d != x.last()) {
    c.Fail("weights {} and {} do not fit x {} and ple {}", ToString(c.operand(2)),
           ToString(c.operand(3)), ToString(x), ToString(ple));
  }
  c.WantVector(4, x.last());
  c.WantVector(5, 1);
  return {x};
}

// ---- sampling -----------------------------------------------------------------------------------

Types InferPenalties(Context& c) {
  const auto& a = c.attrs<rl_penalties_attrs>();
  if (!c.WantMatrix(0) || !c.WantRank(1, 2) || !c.WantDType(1, DType::kI32) || !c.WantRank(2, 1)) {
    return {};
  }
  const TensorType& logits = c.operand(0);
  const TensorType& history = c.operand(1);
  const Dim& fresh = c.operand(2).rows();
  c.WantIndex(2, fresh);
  c.WantIndex(3, logits.rows());
  c.WantIndex(4, logits.rows());
  c.WantIndex(5, fresh);
  c.WantIndex(6, fresh);
  c.WantIndex(7, history.dim(0));
  if (a.last_n < 0 || a.last_n > history.dim(1).constant) {
    c.Fail("last_n = {} is outside 0 to the capacity {}", a.last_n, ToString(history.dim(1)));
  }
  if (!std::isfinite(a.repeat) || a.repeat <= 0 || !std::isfinite(a.frequency) ||
      !std::isfinite(a.presence)) {
    c.Fail("penalties {}, {}, {} must be finite and repeat > 0", a.repeat, a.frequency, a.presence);
  }
  return {logits};
}

Types InferBiasAdd(Context& c) {
  if (!c.WantMatrix(0) || !c.WantRank(1, 1)) return {};
  c.WantDType(1, DType::kI32);
  c.WantVector(2, c.operand(1).rows());
  return {c.operand(0)};
}

template <typename Attrs>
Types InferProbabilityMask(Context& c) {
  const float p = c.attrs<Attrs>().p;
  if (!(p > 0 && p <= 1)) c.Fail("p is {}, expected 0 < p <= 1", p);
  if (!c.WantMatrix(0)) return {};
  return {c.operand(0)};
}

Types InferRandomUniform(Context& c) {
  c.WantIndex(0, 2);
  if (!c.WantRank(1, 1)) return {};
  c.WantIndex(1, c.operand(1).rows());
  c.WantIndex(2, c.operand(1).rows());
  return {TensorType(DType::kF32, {c.operand(1).rows()})};
}

Types InferCategorical(Context& c) {
  if (!c.WantMatrix(0)) return {};
  c.WantVector(1, c.operand(0).rows());
  return {TensorType(DType::kI32, {c.operand(0).rows()})};
}

Types Dispatch(OpKind kind, Context& c) {
  switch (kind) {
    case OpKind::kReshape:
      return InferReshape(c);
    case OpKind::kSlice:
      return InferSlice(c);
    case OpKind::kConcat:
      return InferConcat(c);
    case OpKind::kCast:
      return InferCast(c);
    case OpKind::kCopy:
      return InferCopy(c);
    case OpKind::kGatherRows:
      return InferGatherRows(c);
    case OpKind::kGatherLast:
      return InferGatherLast(c);
    case OpKind::kUnary:
      return InferUnary(c);
    case OpKind::kBinary:
      return InferBinary(c);
    case OpKind::kScale:
      return InferScale(c);
    case OpKind::kAffine:
      return InferAffine(c);
    case OpKind::kSelect:
      return InferSelect(c);
    case OpKind::kReduce:
      return InferReduce(c);
    case OpKind::kArgMax:
      return InferArgMax(c);
    case OpKind::kTopK:
      return InferTopK(c);
    case OpKind::kCumSum:
    case OpKind::kSoftmax:
      return InferRowwise(c);
    case OpKind::kMatMul:
      return InferMatMul(c);
    case OpKind::kRmsNorm:
      return InferRmsNorm(c);
    case OpKind::kSoftcap:
      return InferSoftcap(c);
    case OpKind::kGeGlu:
      return InferGeGlu(c);
    case OpKind::kGeGluLinear:
      return InferGeGluLinear(c);
    case OpKind::kResidualNorm:
      return InferResidualNorm(c);
    case OpKind::kRope:
      return InferRope(c);
    case OpKind::kAttention:
      return InferAttention(c);
    case OpKind::kAttentionScores:
      return InferAttentionScores(c);
    case OpKind::kAttentionMix:
      return InferAttentionMix(c);
    case OpKind::kStateAppend:
      return InferStateAppend(c);
    case OpKind::kPleInject:
      return InferPleInject(c);
    case OpKind::kPenalties:
      return InferPenalties(c);
    case OpKind::kBiasAdd:
      return InferBiasAdd(c);
    case OpKind::kTopPMask:
      return InferProbabilityMask<rl_top_p_mask_attrs>(c);
    case OpKind::kMinPMask:
      return InferProbabilityMask<rl_min_p_mask_attrs>(c);
    case OpKind::kTypicalPMask:
      return InferProbabilityMask<rl_typical_p_mask_attrs>(c);
    case OpKind::kRandomUniform:
      return InferRandomUniform(c);
    case OpKind::kCategorical:
      return InferCategorical(c);
  }
  c.Fail("unknown op {}", static_cast<uint32_t>(kind));
  return {};
}

}  // namespace

Result<std::vector<TensorType>> InferTypes(OpKind kind, const OpAttrs& attrs,
                                           std::span<const TensorType* const> operands) {
  const OpInfo& info = InfoOf(kind);
  if (operands.size() != info.operands.size()) {
    return MakeError(ErrorKind::kRuntime, "ir.type", "{}: found {} operands, expected {}",
                     info.name, operands.size(), info.operands.size());
  }
  if (attrs.size() != info.attrs_size) {
    return MakeError(ErrorKind::kRuntime, "ir.type", "{}: attributes of {} bytes, expected {}",
                     info.name, attrs.size(), info.attrs_size);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == nullptr && !info.operands[i].optional) {
      return MakeError(ErrorKind::kRuntime, "ir.type", "{}: operand {} is missing", info.name,
                       info.operands[i].name);
    }
    if (operands[i] == nullptr) continue;
    if (auto status = CheckType(*operands[i]); !status) {
      return tl::unexpected<Error>(std::move(status).error().WithContext(
          fmt::format("{}: operand {}", info.name, info.operands[i].name)));
    }
  }
  Context context(info, attrs, operands);
  auto types = Dispatch(kind, context);
  if (context.ok()) {
    for (const TensorType& type : types) {
      if (auto status = CheckType(type); !status) {
        context.Fail("result: {}", status.error().message);
      }
    }
  }
  return std::move(context).Finish(std::move(types));
}

}  // namespace rullama

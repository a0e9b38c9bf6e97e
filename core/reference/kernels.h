// The kernels behind EvaluateOp, one file for each op group. Internal to core/reference.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <span>
#include <utility>

#include "core/base/status.h"
#include "core/ir/ops.h"
#include "core/reference/tensor.h"

namespace rullama::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One evaluation: operand types fit the op, and `out` has the inferred dtypes and dims,
// zero-filled.
struct Call {
  OpKind kind;
  const OpAttrs& attrs;
  std::span<const Tensor* const> operands;
  std::span<Tensor> out;

  [[nodiscard]] const Tensor& in(size_t index) const { return *operands[index]; }
  [[nodiscard]] bool has(size_t index) const { return operands[index] != nullptr; }
  [[nodiscard]] Tensor& y() const { return out[0]; }
  template <typename Attrs>
  [[nodiscard]] const Attrs& As() const {
    return *static_cast<const Attrs*>(attrs.data());
  }
};

using Kernel = Status (*)(const Call&);

// A kernel and the operands it reads while they are packed (bit i: operand i); all others arrive
// unpacked.
struct KernelInfo {
  Kernel kernel;
  uint32_t reads_packed = 0;
};

template <typename... Args>
tl::unexpected<Error> IndexError(const Call& call, fmt::format_string<Args...> format,
                                 Args&&... args) {
  return tl::unexpected<Error>(Error{
      ErrorKind::kRuntime, "ref.index",
      fmt::format("{}: {}", NameOf(call.kind), fmt::format(format, std::forward<Args>(args)...))});
}

// structure.cc
Status EvalReshape(const Call& call);  // also copy: the elements in order
Status EvalSlice(const Call& call);
Status EvalConcat(const Call& call);
Status EvalCast(const Call& call);
Status EvalGatherRows(const Call& call);
Status EvalGatherLast(const Call& call);
// pointwise.cc
Status EvalUnary(const Call& call);
Status EvalBinary(const Call& call);
Status EvalScale(const Call& call);
Status EvalAffine(const Call& call);
Status EvalSelect(const Call& call);
Status EvalWhere(const Call& call);
Status EvalSoftcap(const Call& call);
Status EvalGeGlu(const Call& call);
double GeluTanh(double x);
// reduce.cc
Status EvalReduce(const Call& call);
Status EvalArgMax(const Call& call);
Status EvalTopK(const Call& call);
Status EvalCumSum(const Call& call);
Status EvalSoftmax(const Call& call);
Status EvalEntropy(const Call& call);
void SoftmaxRow(std::span<const double> x, std::span<double> y);
// matmul.cc
Status EvalMatMul(const Call& call);
Status EvalGeGluLinear(const Call& call);
Status EvalPleInject(const Call& call);
Status EvalSoftEmbed(const Call& call);
// moe.cc
Status EvalGroupedMatMul(const Call& call);
Status EvalMoeFfn(const Call& call);
// norm.cc
Status EvalRmsNorm(const Call& call);
Status EvalResidualNorm(const Call& call);
// y = x / sqrt(mean(x^2) + eps) * weight; an empty weight is all ones.
void RmsNormRow(std::span<const double> x, std::span<const double> weight, double eps,
                std::span<double> y);
// attention.cc
Status EvalRope(const Call& call);
Status EvalAttention(const Call& call);
Status EvalAttentionScores(const Call& call);
Status EvalAttentionMix(const Call& call);
// state.cc
Status EvalStateAppend(const Call& call);
// The position that row `row` of a ring of `capacity` rows holds when `past` rows have been stored,
// or -1 if none was stored there.
int64_t RingPosition(int64_t row, int64_t past, int64_t capacity);
// penalties.cc
Status EvalPenalties(const Call& call);
// sampling.cc
Status EvalBiasAdd(const Call& call);
Status EvalTopPMask(const Call& call);
Status EvalMinPMask(const Call& call);
Status EvalTypicalPMask(const Call& call);
Status EvalRandomUniform(const Call& call);
Status EvalCategorical(const Call& call);
Status EvalEntropyAccept(const Call& call);

// Elements of row `row` along the last dimension.
inline std::span<const double> Row(const Tensor& x, int64_t row) {
  const auto n = static_cast<size_t>(x.last());
  return {x.f.data() + static_cast<size_t>(row) * n, n};
}
inline std::span<double> Row(Tensor& x, int64_t row) {
  const auto n = static_cast<size_t>(x.last());
  return {x.f.data() + static_cast<size_t>(row) * n, n};
}
// How many such rows there are.
inline int64_t RowCount(const Tensor& x) { return x.last() == 0 ? 0 : x.elements() / x.last(); }

}  // namespace rullama::reference

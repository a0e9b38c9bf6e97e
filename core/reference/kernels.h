// The kernels of EvaluateOp(), one file per op group. Internal to core/reference.
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

// The arguments of one evaluation. Operand types have been checked, and `out` has tensors of the
// inferred dtypes and dims, filled with zeros.
struct Call {
  OpKind kind;
  const OpAttrs& attrs;
  std::span<const Tensor* const> operands;
  std::span<Tensor> out;

  [[nodiscard]] const Tensor& in(size_t index) const { return *operands[index]; }
  [[nodiscard]] bool has(size_t index) const { return operands[index] != nullptr; }
  // Null for an absent operand.
  [[nodiscard]] const Tensor* find(size_t index) const { return operands[index]; }
  [[nodiscard]] Tensor& y() const { return out[0]; }
  template <typename Attrs>
  [[nodiscard]] const Attrs& As() const {
    return *static_cast<const Attrs*>(attrs.data());
  }
};

using Kernel = Status (*)(const Call&);

template <typename... Args>
tl::unexpected<Error> IndexError(const Call& call, fmt::format_string<Args...> format,
                                 Args&&... args) {
  return tl::unexpected<Error>(Error{
      ErrorKind::kRuntime, "ref.index",
      fmt::format("{}: {}", NameOf(call.kind), fmt::format(format, std::forward<Args>(args)...))});
}

// One kernel for each op, from ops.def; an op without one fails to link.
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  Status Eval##Name(const Call& call);
#include <rullama/abi/ops.def>

double GeluTanh(double x);
// The derivative of 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
double GeluTanhGrad(double x);
void SoftmaxRow(std::span<const double> x, std::span<double> y);
// y = x / sqrt(mean(x^2) + eps) * weight; an empty weight is all ones.
void RmsNormRow(std::span<const double> x, std::span<const double> weight, double eps,
                std::span<double> y);
// y[rows, n] = x[rows, k] times weight[n, k] transposed, or weight[k, n] as stored; `y` begins at
// 0. Errors: those of ReadFloats.
Status Linear(const Tensor& x, const Tensor& weight, Tensor& y);
Status LinearAsStored(const Tensor& x, const Tensor& weight, Tensor& y);
// The position that row `row` of a ring of `capacity` rows holds when `past` rows have been stored,
// or -1 if none was stored there.
int64_t RingPosition(int64_t row, int64_t past, int64_t capacity);

// Elements of row `row` along the last dimension.
inline std::span<const double> Row(const Tensor& x, int64_t row) {
  const auto n = static_cast<size_t>(x.last());
  return {x.f.data() + static_cast<size_t>(row) * n, n};
}
inline std::span<double> Row(Tensor& x, int64_t row) {
  const auto n = static_cast<size_t>(x.last());
  return {x.f.data() + static_cast<size_t>(row) * n, n};
}
// The number of such rows.
inline int64_t RowCount(const Tensor& x) { return x.last() == 0 ? 0 : x.elements() / x.last(); }

}  // namespace rullama::reference

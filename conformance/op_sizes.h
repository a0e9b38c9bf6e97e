// The sizes of the terms that an op adds up, which its errors are relative to. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "core/ir/graph.h"
#include "core/reference/interpreter.h"

namespace rullama::conformance {

// The norm that combines sizes of terms: the sum of magnitudes bounds the error, that of squares
// estimates the mean square of independent errors.
enum class Norm { kMagnitude, kEnergy };

double Raised(Norm norm, double value);
reference::Tensor Raised(Norm norm, reference::Tensor tensor);

// No slope of gelu is steeper.
inline constexpr double kSteepest = 1.13;

// The magnitudes of the elements, in float64.
reference::Tensor Abs(const reference::Tensor& tensor);
// The largest magnitude that is finite.
double Largest(const std::vector<double>& values);
// The largest finite magnitude of each row of the last dimension, for each of its elements.
std::vector<double> RowMaxima(const reference::Tensor& tensor);

// The op of a case and its operands after the reference ran.
struct Site {
  const Op& op;
  const reference::Interpreter& ran;
  [[nodiscard]] const reference::Tensor& in(size_t i) const { return *ran.Get(op.inputs[i]); }
  // 0 for an absent operand.
  [[nodiscard]] double LargestOf(size_t i) const {
    return op.inputs[i] == kNoValue ? 0 : Largest(Abs(in(i)).f);
  }
};

// The first result of an op; empty if the reference refuses it.
std::vector<double> Evaluate(OpKind kind, const OpAttrs& attrs,
                             const std::vector<const reference::Tensor*>& operands);

// sum |x| |w| of a linear layer, or sum x^2 w^2.
std::vector<double> LinearSize(Norm norm, const reference::Tensor& x,
                               const reference::Tensor& weight, int transposed);
// The same of grouped_matmul.
std::vector<double> GroupedSize(Norm norm, const reference::Tensor& x,
                                const reference::Tensor& weight, const reference::Tensor& experts,
                                int as_stored = 0);

// The sizes of the elements of an op of this kind that consists of products.
std::vector<double> GeGluLinearSize(Norm norm, const Site& s);
std::vector<double> AdaptedLinearSize(Norm norm, const Site& s);
std::vector<double> AdaptedGeGluLinearSize(Norm norm, const Site& s);
std::vector<double> AdapterSumSize(Norm norm, const Site& s);
std::vector<double> RowAdaptedLinearSize(Norm norm, const Site& s);
std::vector<double> RowAdaptedGeGluLinearSize(Norm norm, const Site& s);
std::vector<double> MoeSize(Norm norm, const Site& s, const reference::Tensor& expected);
std::vector<double> HeadSize(Norm norm, const Site& s, const reference::Tensor& expected);

}  // namespace rullama::conformance

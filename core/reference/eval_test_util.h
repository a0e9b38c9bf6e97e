// Evaluates one op in a test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/reference/evaluate.h"

namespace rullama::reference {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Operands = std::vector<std::optional<Tensor>>;

inline Result<std::vector<Tensor>> TryEval(OpKind kind, const OpAttrs& attrs,
                                           const Operands& operands, int64_t t = 1) {
  std::vector<const Tensor*> pointers;
  for (const auto& operand : operands) pointers.push_back(operand ? &*operand : nullptr);
  return EvaluateOp(kind, attrs, pointers, t);
}

// Returns the first result. After an error, fails the test and returns an empty tensor.
inline Tensor Eval(OpKind kind, const OpAttrs& attrs, const Operands& operands) {
  auto results = TryEval(kind, attrs, operands);
  if (!results) {
    ADD_FAILURE() << results.error().ToString();
    return {};
  }
  return std::move((*results)[0]);
}

inline std::string EvalError(OpKind kind, const OpAttrs& attrs, const Operands& operands) {
  const auto results = TryEval(kind, attrs, operands);
  return results ? "no error" : results.error().ToString();
}

inline Tensor F32(std::vector<int64_t> dims, std::vector<double> values) {
  return Tensor::F32(std::move(dims), std::move(values));
}
inline Tensor I32(std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  return Tensor::I32(std::move(dims), values);
}

// Equal within a few units of float64, NaN equal to NaN.
inline void ExpectValues(const Tensor& tensor, const std::vector<double>& expected) {
  ASSERT_EQ(tensor.f.size(), expected.size());
  for (size_t j = 0; j < expected.size(); ++j) {
    if (std::isnan(expected[j])) {
      EXPECT_TRUE(std::isnan(tensor.f[j])) << "element " << j << " is " << tensor.f[j];
    } else if (std::isinf(expected[j])) {
      EXPECT_EQ(tensor.f[j], expected[j]) << "element " << j;
    } else {
      EXPECT_NEAR(tensor.f[j], expected[j], 1e-12 * (1 + std::abs(expected[j]))) << "element " << j;
    }
  }
}

}  // namespace rullama::reference

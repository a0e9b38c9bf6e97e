// Compares derivatives with central differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/reference/tensor.h"

namespace rullama::reference {

// Expects `gradient` to be the derivative of `loss` by the elements of `x`, on which it depends.
// The error of a central difference is of the order of step^2; rounding adds about 1e-16 / step.
inline void ExpectDerivative(const Tensor& gradient, Tensor& x,
                             const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  constexpr double kRelative = 1e-6;
  ASSERT_EQ(gradient.f.size(), x.f.size());
  double largest = 0;
  for (const double value : gradient.f) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < x.f.size(); ++i) {
    const double value = x.f[i];
    x.f[i] = value + kStep;
    const double above = loss();
    x.f[i] = value - kStep;
    const double below = loss();
    x.f[i] = value;
    EXPECT_NEAR(gradient.f[i], (above - below) / (2 * kStep), kRelative * largest)
        << "element " << i;
  }
}

}  // namespace rullama::reference

// Compares the products with weights as they are stored with float64 sums. Some levels have no
// kernel to test.
#include "backends/cpu/kernels/stored_product.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/test_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

using testing::AvailableIsas;
using testing::RandomFloats;
using testing::Rng;

// x has zeros wherever `begins` has no step.
struct StoredProblem {
  size_t batch, columns, k;
  std::vector<size_t> begins;
  std::vector<float> x, rows;

  StoredProblem(size_t rows_of_x, size_t columns_of_w, size_t rows_of_w, std::vector<size_t> steps)
      : batch(rows_of_x), columns(columns_of_w), k(rows_of_w), begins(std::move(steps)) {
    Rng rng(static_cast<uint32_t>(batch * 1000 + columns + k));
    x = RandomFloats(batch * k, 3.0f, rng);
    rows = RandomFloats(begins.size() * kStoredStep * kStoredSpan, 1.0f, rng);
    for (size_t i = 0; i < k; ++i) {
      if (StepOf(i) < begins.size()) continue;
      for (size_t m = 0; m < batch; ++m) x[m * k + i] = 0;
    }
    // The rows of W after the last one.
    for (size_t row = 0; row < begins.size() * kStoredStep; ++row) {
      if (begins[row / kStoredStep] + row % kStoredStep < k) continue;
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * kStoredSpan);
      std::fill_n(begin, kStoredSpan, 0.0f);
    }
  }

  [[nodiscard]] size_t StepOf(size_t i) const {
    const auto found = std::ranges::find(begins, i / kStoredStep * kStoredStep);
    return static_cast<size_t>(found - begins.begin());
  }

  // Adds the product of batch rows [first, first + count) to y, [count][columns + 1].
  void Run(const KernelTable& table, size_t first, size_t count, bool add,
           std::vector<float>& y) const {
    // NaN, wherever a kernel takes it for a number.
    std::vector<std::byte> scratch(table.stored_scratch_bytes, std::byte{0xFF});
    table.add_stored_product({.rows = rows.data(),
                              .begins = begins.data(),
                              .steps = begins.size(),
                              .columns = columns,
                              .k = k,
                              .x = x.data() + first * k,
                              .batch = count,
                              .y = y.data(),
                              .y_stride = columns + 1,
                              .add = add,
                              .scratch = scratch.data()});
  }

  // Element i of a step, of row m of x (0 after its end) and of column n of W.
  [[nodiscard]] float FactorOfX(size_t m, size_t step, size_t i) const {
    const size_t at = begins[step] + i;
    return at < k ? x[m * k + at] : 0.0f;
  }
  [[nodiscard]] float FactorOfW(size_t n, size_t step, size_t i) const {
    return rows[(step * kStoredStep + i) * kStoredSpan + n];
  }

  // The result for a row and a column, and how far off it may be.
  struct Expected {
    double sum, error;
  };
  [[nodiscard]] Expected ExpectedAt(const KernelTable& table, size_t m, size_t n,
                                    float before) const {
    double sum = before, sizes = std::fabs(before), off = 0;
    for (size_t step = 0; step < begins.size(); ++step) {
      double squares_x = 0, squares_w = 0, sizes_x = 0, sizes_w = 0;
      for (size_t i = 0; i < kStoredStep; ++i) {
        const double factor = FactorOfX(m, step, i), weight = FactorOfW(n, step, i);
        sum += factor * weight;
        sizes += std::fabs(factor * weight);
        squares_x += factor * factor;
        squares_w += weight * weight;
        sizes_x += std::fabs(factor);
        sizes_w += std::fabs(weight);
      }
      off += std::sqrt(squares_x) * sizes_w + std::sqrt(squares_w) * sizes_x;
    }
    // AMX: each factor is off by at most 2^-16 of itself, and the product of the low parts is left
    // out. VNNI: x is off by half of 1 / 32764 of the norm of its step, W by no more, sums by
    // 2^-20.
    const bool has_amx = table.split_row != nullptr;
    return {sum, has_amx ? 0x1p-14 * sizes : off / (2 * 32763.0) + 0x1p-20 * sizes};
  }

  void ExpectExact(const KernelTable& table, const std::vector<float>& y, float before) const {
    for (size_t m = 0; m < batch; ++m) {
      for (size_t n = 0; n < columns; ++n) {
        const Expected expected = ExpectedAt(table, m, n, before);
        ASSERT_NEAR(y[m * (columns + 1) + n], expected.sum, expected.error) << m << ", " << n;
      }
      ASSERT_EQ(y[m * (columns + 1) + columns], before) << "after the columns of row " << m;
    }
  }
};

class StoredProductTest : public ::testing::TestWithParam<Isa> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return KernelsFor(GetParam()); }
  [[nodiscard]] bool HasKernel() const { return table().add_stored_product != nullptr; }
};

TEST_P(StoredProductTest, AddsTheStepsThatAreGiven) {
  const Isa isa = GetParam();
  EXPECT_EQ(HasKernel(), isa == Isa::kAvxVnni || isa == Isa::kAvx512Vnni || isa == Isa::kAmx);
  if (!HasKernel()) return;
  for (const size_t batch : {1, 16, 17, 33, 150}) {
    for (const size_t columns : {32, 256}) {
      const StoredProblem problem(batch, columns, 109,
                                  {0, 64, 96});  // 13 elements of the last step
      std::vector<float> y(batch * (columns + 1), 0.5f);
      problem.Run(table(), 0, batch, /*add=*/true, y);
      problem.ExpectExact(table(), y, 0.5f);
    }
  }
}

TEST_P(StoredProductTest, OverwritesUnlessItAdds) {
  if (!HasKernel()) return;
  const StoredProblem problem(40, 64, 256, {0, 32, 64, 96, 128, 160, 192, 224});
  std::vector<float> zeros(40 * 65, 0.0f), nan(40 * 65, std::nanf(""));
  problem.Run(table(), 0, 40, /*add=*/true, zeros);
  problem.Run(table(), 0, 40, /*add=*/false, nan);
  for (size_t m = 0; m < 40; ++m) nan[m * 65 + 64] = 0;
  EXPECT_EQ(nan, zeros);
}

TEST_P(StoredProductTest, RowsDoNotDependOnTheBatch) {
  if (!HasKernel()) return;
  const StoredProblem problem(150, 96, 256, {32, 128});
  std::vector<float> all(150 * 97, 0.0f);
  problem.Run(table(), 0, 150, /*add=*/false, all);
  for (const size_t m : {0, 15, 16, 31, 32, 149}) {
    std::vector<float> alone(97, 0.0f);
    problem.Run(table(), m, 1, /*add=*/false, alone);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(m * 97);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), begin)) << "row " << m;
  }
}

// The largest sums of integers: factors of one sign, all equal, or one of each step.
TEST_P(StoredProductTest, SumsDoNotOverflow) {
  if (!HasKernel()) return;
  for (const bool one_alone : {false, true}) {
    StoredProblem problem(7, 96, 64, {0, 32});
    for (size_t i = 0; i < problem.x.size(); ++i) {
      problem.x[i] = one_alone && i % kStoredStep != 5 ? 0.0f : -3.0f;
    }
    for (size_t i = 0; i < problem.rows.size(); ++i) {
      const bool counts = i / kStoredSpan % kStoredStep == 5;
      problem.rows[i] = one_alone && !counts ? 0.0f : 7.0f;
    }
    std::vector<float> y(7 * 97, 0.0f);
    problem.Run(table(), 0, 7, /*add=*/true, y);
    problem.ExpectExact(table(), y, 0.0f);
  }
}

// A NaN or an infinite element of a row of x or a column of W makes that row or column NaN.
TEST_P(StoredProductTest, NumbersThatAreNotFiniteAreNotLost) {
  if (!HasKernel()) return;
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    StoredProblem problem(9, 64, 64, {0, 32});
    problem.x[4 * 64 + 37] = bad;
    problem.rows[40 * kStoredSpan + 21] = bad;
    std::vector<float> y(9 * 65, 0.0f);
    problem.Run(table(), 0, 9, /*add=*/true, y);
    for (size_t m = 0; m < 9; ++m) {
      for (size_t n = 0; n < 64; ++n) {
        EXPECT_EQ(std::isfinite(y[m * 65 + n]), m != 4 && n != 21) << m << ", " << n;
      }
    }
  }
}

// Numbers whose squares overflow or vanish, among others.
TEST_P(StoredProductTest, NumbersOfAnySizeAreMultiplied) {
  if (!HasKernel()) return;
  for (const float size : {1e-28f, 1e-20f, 1e20f, 1e30f}) {
    StoredProblem problem(3, 32, 64, {0, 32});
    for (size_t m = 0; m < 3; ++m) {
      for (size_t k = 0; k < 32; ++k) problem.x[m * 64 + k] *= m == 1 ? 1.0f : size;
    }
    for (size_t k = 0; k < 32; ++k) problem.rows[k * kStoredSpan + 7] *= 1 / size;
    std::vector<float> y(3 * 33, 0.0f);
    problem.Run(table(), 0, 3, /*add=*/true, y);
    problem.ExpectExact(table(), y, 0.0f);
  }
}

TEST_P(StoredProductTest, OneOrderOfSumsHasNoStoredKernel) {
  EXPECT_EQ(WithOneOrderOfSums(table()).add_stored_product, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Levels, StoredProductTest, ::testing::ValuesIn(AvailableIsas()),
                         testing::IsaTestName);

}  // namespace
}  // namespace rullama::cpu

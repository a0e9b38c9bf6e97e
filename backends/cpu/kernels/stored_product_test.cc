// Compares the matrix unit's product with weights as they are stored with float64 sums. Levels
// without such a unit have no kernel to test.
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
    // The rows of W behind the last one.
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
    std::vector<std::byte> scratch(table.stored_scratch_bytes);
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

  // Each factor is off by at most 2^-16 of itself, and the product of the low parts is left out.
  void ExpectExact(const std::vector<float>& y, float before) const {
    for (size_t m = 0; m < batch; ++m) {
      for (size_t n = 0; n < columns; ++n) {
        double sum = before, sizes = std::fabs(before);
        for (size_t i = 0; i < k; ++i) {
          if (StepOf(i) == begins.size()) continue;
          const size_t row = StepOf(i) * kStoredStep + i % kStoredStep;
          const double term = double{x[m * k + i]} * rows[row * kStoredSpan + n];
          sum += term;
          sizes += std::fabs(term);
        }
        ASSERT_NEAR(y[m * (columns + 1) + n], sum, 0x1p-14 * sizes) << "row " << m << ", " << n;
      }
      ASSERT_EQ(y[m * (columns + 1) + columns], before) << "behind the columns of row " << m;
    }
  }
};

class StoredProductTest : public ::testing::TestWithParam<Isa> {
 protected:
  [[nodiscard]] const KernelTable& table() const { return KernelsFor(GetParam()); }
  [[nodiscard]] bool HasKernel() const { return table().add_stored_product != nullptr; }
};

TEST_P(StoredProductTest, AddsTheStepsThatAreGiven) {
  EXPECT_EQ(HasKernel(), table().split_row != nullptr) << "both are of the matrix unit";
  if (!HasKernel()) return;
  for (const size_t batch : {1, 16, 17, 33, 150}) {
    for (const size_t columns : {32, 256}) {
      const StoredProblem problem(batch, columns, 109,
                                  {0, 64, 96});  // 13 elements of the last step
      std::vector<float> y(batch * (columns + 1), 0.5f);
      problem.Run(table(), 0, batch, /*add=*/true, y);
      problem.ExpectExact(y, 0.5f);
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

TEST_P(StoredProductTest, OneOrderOfSumsHasNoMatrixUnit) {
  EXPECT_EQ(WithOneOrderOfSums(table()).add_stored_product, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Levels, StoredProductTest, ::testing::ValuesIn(AvailableIsas()),
                         testing::IsaTestName);

}  // namespace
}  // namespace rullama::cpu

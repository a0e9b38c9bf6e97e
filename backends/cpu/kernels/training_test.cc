// Compares the kernels of losses and derivatives on every level with float64 formulas.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "backends/cpu/kernels/test_weights.h"
#include "backends/cpu/kernels/training_kernels.h"
#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

using testing::AvailableIsas;
using testing::RandomFloats;
using testing::Rng;

constexpr float kHuge = std::numeric_limits<float>::infinity();

class TrainingKernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  const TrainingKernels& table() const { return TrainingKernelsFor(GetParam()); }
};

// A few roundings of float32, relative to the largest number of a row.
void ExpectNear(const std::vector<float>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 2e-6 * largest) << "element " << i << " of " << found.size();
  }
}

TEST_P(TrainingKernelsTest, CrossEntropyOfAVocabulary) {
  Rng rng(1);
  for (const size_t n : {size_t{1}, size_t{15}, size_t{17}, size_t{262144}}) {
    const std::vector<float> z = RandomFloats(n, 1.0f, rng);
    const size_t target = n / 2;
    double sum = 0;
    for (const float value : z) sum += std::exp(static_cast<double>(value));
    ASSERT_NEAR(table().cross_entropy(z.data(), n, target), std::log(sum) - z[target], 2e-6);
    for (const float cap : {0.0f, 5.0f}) {
      std::vector<double> expected(n);
      for (size_t i = 0; i < n; ++i) {
        const double slope = cap > 0 ? 1 - (z[i] / cap) * static_cast<double>(z[i] / cap) : 1;
        expected[i] = 0.5 * slope * (std::exp(static_cast<double>(z[i])) / sum - (i == target));
      }
      std::vector<float> dz = z;
      table().cross_entropy_grad(dz.data(), n, target, 0.5f, cap, dz.data());  // in place
      ExpectNear(dz, expected);
    }
  }
}

TEST_P(TrainingKernelsTest, CrossEntropyAtItsEdges) {
  const float large[] = {1e30f, 1e30f, -1e30f};
  EXPECT_FLOAT_EQ(table().cross_entropy(large, 3, 0), std::numbers::ln2_v<float>);
  EXPECT_EQ(table().cross_entropy(large, 3, 2), 2e30f);
  const float banned[] = {0, -kHuge, 1};
  EXPECT_EQ(table().cross_entropy(banned, 3, 1), kHuge);
  const float none[] = {-kHuge, -kHuge, -kHuge};
  EXPECT_EQ(table().cross_entropy(none, 3, 1), kHuge);
  std::vector<float> dz(3);
  table().cross_entropy_grad(none, 3, 1, 2.0f, 0.0f, dz.data());
  EXPECT_EQ(dz, (std::vector<float>{0, -2, 0}));
  const float bad[] = {-kHuge, std::numeric_limits<float>::quiet_NaN(), -kHuge};
  EXPECT_TRUE(std::isnan(table().cross_entropy(bad, 3, 0)));
}

TEST_P(TrainingKernelsTest, GeluTanhGrad) {
  const auto exact = [](double x) {
    const double c = std::sqrt(2 / std::numbers::pi), k = 0.044715;
    const double t = std::tanh(c * (x + k * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * k * x * x);
  };
  std::vector<float> x;
  for (float value = -10.0f; value <= 10.0f; value += 0.0137f) x.push_back(value);
  std::vector<float> y(x.size());
  table().gelu_tanh_grad(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], exact(x[i]), 1e-6) << "x = " << x[i];
  const std::vector<float> far = {10.5f, -10.5f, 1e30f, -1e30f, kHuge, -kHuge};
  std::vector<float> limits(far.size());
  table().gelu_tanh_grad(far.data(), far.size(), limits.data());
  EXPECT_EQ(limits, (std::vector<float>{1, 0, 1, 0, 1, 0}));
}

TEST_P(TrainingKernelsTest, SumSquares) {
  Rng rng(2);
  for (const size_t n : {size_t{1}, size_t{31}, size_t{100000}}) {
    const std::vector<float> x = RandomFloats(n, 1.0f, rng);
    double sum = 0;
    for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_NEAR(table().sum_squares(x.data(), n), sum, 1e-12 * sum);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, TrainingKernelsTest, ::testing::ValuesIn(AvailableIsas()),
                         testing::IsaTestName);

}  // namespace
}  // namespace rullama::cpu

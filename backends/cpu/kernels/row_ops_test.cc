// Compares pointwise and row kernels on every level with float64 formulas.
#include <rullama/sdk/half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/test_weights.h"
#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

using testing::AvailableIsas;
using testing::RandomFloats;
using testing::Rng;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Row lengths around the vector width, and one of a model.
constexpr size_t kLengths[] = {1, 2, 15, 16, 17, 31, 33, 48, 1536};

class RowOpsTest : public ::testing::TestWithParam<Isa> {
 protected:
  const KernelTable& table() const { return KernelsFor(GetParam()); }
};

// Values of both signs over all relevant magnitudes.
std::vector<float> Sweep() {
  std::vector<float> x = {0.0f, -0.0f};
  for (float magnitude = 1e-8f; magnitude < 120.0f; magnitude *= 1.003f) {
    x.push_back(magnitude);
    x.push_back(-magnitude);
  }
  return x;
}

void ExpectClose(const std::vector<float>& x, const std::vector<float>& y,
                 const std::function<double(double)>& exact, double relative, double floor) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(x[i]);
    ASSERT_NEAR(y[i], expected, relative * std::fabs(expected) + floor) << "x = " << x[i];
  }
}

TEST_P(RowOpsTest, ExpIsAccurate) {
  std::vector<float> x;
  for (float v = -86.4f; v < 88.7f; v += 0.0037f) x.push_back(v);
  std::vector<float> y(x.size());
  table().exp(x.data(), x.size(), y.data());
  ExpectClose(
      x, y, [](double v) { return std::exp(v); }, 2.5e-7, 0);
}

TEST_P(RowOpsTest, ExpAtTheEnds) {
  const float x[] = {-kInf, -1000.0f, -88.0f, 0.0f, 89.0f, 1000.0f, kInf, kNan};
  float y[8];
  table().exp(x, 8, y);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], kInf);
  EXPECT_EQ(y[6], kInf);
  EXPECT_TRUE(std::isnan(y[7]));
}

// x (1 + tanh u) / 2 in a form without cancellation for negative x.
double ExactGelu(double v) {
  return v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * v * (1 + 0.044715 * v * v)));
}

TEST_P(RowOpsTest, GeluIsAccurate) {
  const auto x = Sweep();
  std::vector<float> y(x.size());
  table().gelu_tanh(x.data(), x.size(), y.data());
  // In the negative tail the result is x * e^-2u with |u| up to 40, and the rounding error of the
  // argument is multiplied by |2u|. Results below 1e-30 may be flushed to zero.
  ExpectClose(x, y, ExactGelu, 8e-6, 1e-30);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(y[i], ExactGelu(x[i]), 5e-7 * std::max(1.0f, std::fabs(x[i])));
  }
  const float fixed[] = {1.0f, -1.0f, 0.5f, -3.0f, 1e30f, -1e30f};
  float out[6];
  table().gelu_tanh(fixed, 6, out);
  EXPECT_NEAR(out[0], 0.841192, 1e-6);
  EXPECT_NEAR(out[1], -0.158808, 1e-6);
  EXPECT_NEAR(out[2], 0.345714, 1e-6);
  EXPECT_NEAR(out[3], -0.0036374, 1e-7);
  EXPECT_EQ(out[4], 1e30f);
  EXPECT_EQ(out[5], 0.0f);
}

TEST_P(RowOpsTest, GegluIsGeluTimesUp) {
  Rng rng(1);
  for (size_t n : kLengths) {
    const auto gate = RandomFloats(n, 2.0f, rng), up = RandomFloats(n, 2.0f, rng);
    std::vector<float> y(n + 1, 7.0f);
    table().geglu(gate.data(), up.data(), n, y.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(y[i], ExactGelu(gate[i]) * up[i], 2e-6 * std::fabs(up[i]));
    }
    EXPECT_EQ(y[n], 7.0f);
  }
}

TEST_P(RowOpsTest, SoftcapIsAccurate) {
  auto x = Sweep();
  x.insert(x.end(), {1e4f, -1e4f, kInf, -kInf});
  std::vector<float> y(x.size());
  table().softcap(x.data(), x.size(), 30.0f, y.data());
  ExpectClose(
      x, y, [](double v) { return 30 * std::tanh(v / 30); }, 5e-7, 0);
}

TEST_P(RowOpsTest, SigmoidAndSilu) {
  auto x = Sweep();
  x.insert(x.end(), {1e4f, -1e4f});
  std::vector<float> y(x.size());
  table().sigmoid(x.data(), x.size(), y.data());
  ExpectClose(
      x, y, [](double v) { return 1 / (1 + std::exp(-v)); }, 5e-7, 1e-37);
  table().silu(x.data(), x.size(), y.data());
  ExpectClose(
      x, y, [](double v) { return v / (1 + std::exp(-v)); }, 5e-7, 1e-35);
}

TEST_P(RowOpsTest, ClampKeepsNan) {
  for (const size_t n : kLengths) {
    std::vector<float> x(n), y(n);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) - 3.0f;
    if (n > 1) x[1] = std::nanf("");
    table().clamp(x.data(), n, -1.5f, kInf, y.data());
    for (size_t i = 0; i < n; ++i) {
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << i;
      } else {
        EXPECT_EQ(y[i], std::max(x[i], -1.5f)) << i;
      }
    }
  }
}

TEST_P(RowOpsTest, Arithmetic) {
  Rng rng(2);
  for (size_t n : kLengths) {
    const auto a = RandomFloats(n, 2.0f, rng), b = RandomFloats(n, 2.0f, rng);
    std::vector<float> sum(n), product(n), affine(n), axpy = b;
    table().add(a.data(), b.data(), n, sum.data());
    table().mul(a.data(), b.data(), n, product.data());
    table().affine(a.data(), n, 3.0f, -0.5f, affine.data());
    table().axpy(0.75f, a.data(), n, axpy.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_EQ(product[i], a[i] * b[i]);
      ASSERT_EQ(affine[i], a[i] * 3.0f - 0.5f);
      ASSERT_NEAR(axpy[i], b[i] + 0.75 * a[i], 1e-6);
    }
  }
}

TEST_P(RowOpsTest, AddWeightedRows) {
  Rng rng(12);
  constexpr size_t kStride = 300, kOutputs = 7, kCount = 10;
  struct Layout {
    size_t output_stride, factor_stride;
  };
  const auto rows = RandomFloats(kStride * kCount, 1.0f, rng);
  const auto factors = RandomFloats(kOutputs * kCount * 2, 1.0f, rng);
  const auto before = RandomFloats(kStride * kOutputs, 1.0f, rng);
  for (const Layout layout : {Layout{2 * kCount, 2}, Layout{1, kOutputs}}) {
    const auto factor = [&](size_t o, size_t i) {
      return factors[o * layout.output_stride + i * layout.factor_stride];
    };
    for (const size_t n : {1, 15, 16, 63, 64, 65, 200, 256}) {
      for (const size_t count : {size_t{1}, size_t{3}, kCount}) {
        for (const size_t outputs : {size_t{1}, size_t{4}, kOutputs}) {
          std::vector<float> y = before, alone = before;
          WeightedRowsArgs args{.factors = factors.data(),
                                .output_stride = layout.output_stride,
                                .factor_stride = layout.factor_stride,
                                .rows = rows.data(),
                                .row_stride = kStride,
                                .count = count,
                                .columns = n,
                                .y = y.data(),
                                .y_stride = kStride,
                                .outputs = outputs};
          table().add_weighted_rows(args);
          for (size_t at = 0; at < y.size(); ++at) {
            const size_t o = at / kStride, j = at % kStride;
            if (o >= outputs || j >= n) {
              ASSERT_EQ(y[at], before[at]) << "after " << n << " columns, " << outputs;
              continue;
            }
            double sum = before[at];
            for (size_t i = 0; i < count; ++i) sum += double{factor(o, i)} * rows[i * kStride + j];
            ASSERT_NEAR(y[at], sum, 1e-5) << n << " columns, " << count << " rows";
          }
          args.outputs = 1;
          for (size_t o = 0; o < outputs; ++o) {
            args.factors = factors.data() + o * layout.output_stride;
            args.y = alone.data() + o * kStride;
            table().add_weighted_rows(args);
          }
          ASSERT_EQ(y, alone) << "an output depends on its neighbours";
        }
      }
    }
  }
}

TEST_P(RowOpsTest, RmsNorm) {
  Rng rng(3);
  for (size_t n : kLengths) {
    const auto x = RandomFloats(n, 5.0f, rng), w = RandomFloats(n, 1.0f, rng);
    const auto residual = RandomFloats(n, 1.0f, rng);
    double squares = 0;
    for (float v : x) squares += static_cast<double>(v) * v;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    std::vector<float> y(n), plain(n), added(n);
    table().rms_norm(x.data(), w.data(), n, 1e-6f, y.data());
    table().rms_norm(x.data(), nullptr, n, 1e-6f, plain.data());
    table().rms_norm_add(x.data(), w.data(), residual.data(), n, 1e-6f, added.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(y[i], x[i] * inverse * w[i], 5e-7 * std::fabs(x[i] * inverse * w[i]));
      ASSERT_NEAR(plain[i], x[i] * inverse, 4e-7 * std::fabs(x[i] * inverse));
      ASSERT_EQ(added[i], residual[i] + y[i]);
    }
  }
}

TEST_P(RowOpsTest, Softmax) {
  Rng rng(4);
  for (size_t n : kLengths) {
    auto x = RandomFloats(n, 8.0f, rng);
    if (n > 2) x[1] = -kInf;
    std::vector<float> y(n);
    table().softmax(x.data(), n, y.data());
    double largest = -INFINITY, total = 0;
    for (float v : x) largest = std::max(largest, static_cast<double>(v));
    for (float v : x) total += std::exp(v - largest);
    for (size_t i = 0; i < n; ++i) {
      const double expected = std::exp(x[i] - largest) / total;
      // The rounding error of x - max, |x - max| 2^-24, becomes the relative error of the result.
      ASSERT_NEAR(y[i], expected, 3e-6 * expected + 1e-35);
    }
  }
}

TEST_P(RowOpsTest, SoftmaxOfNothingVisibleIsZero) {
  std::vector<float> x(19, -kInf), y(19, 7.0f);
  table().softmax(x.data(), x.size(), y.data());
  EXPECT_EQ(y, std::vector<float>(19, 0.0f));
}

TEST_P(RowOpsTest, RopeRotatesPairs) {
  Rng rng(5);
  for (size_t half : {4u, 16u, 20u, 128u}) {
    const auto x = RandomFloats(2 * half, 1.0f, rng);
    std::vector<float> cos(half), sin(half), y = x;
    for (size_t i = 0; i < half; ++i) {
      cos[i] = std::cos(0.1f * static_cast<float>(i));
      sin[i] = std::sin(0.1f * static_cast<float>(i));
    }
    table().rope_neox(y.data(), cos.data(), sin.data(), half, y.data());  // in place
    for (size_t i = 0; i < half; ++i) {
      ASSERT_NEAR(y[i], double{x[i]} * cos[i] - double{x[half + i]} * sin[i], 5e-7);
      ASSERT_NEAR(y[half + i], double{x[i]} * sin[i] + double{x[half + i]} * cos[i], 5e-7);
    }
  }
}

TEST_P(RowOpsTest, RotateIsAWalshHadamardTransform) {
  Rng rng(11);
  for (size_t n : {2u, 8u, 32u, 64u, 128u, 256u, 512u}) {
    const auto x = RandomFloats(n, 1.0f, rng);
    const float scale = 1 / std::sqrt(static_cast<float>(n));
    std::vector<float> y(n), back = x;
    table().rotate(x.data(), n, scale, y.data());
    for (size_t i = 0; i < n; ++i) {
      double expected = 0;
      for (size_t j = 0; j < n; ++j) {
        expected += std::popcount(i & j) % 2 == 0 ? double{x[j]} : -double{x[j]};
      }
      ASSERT_NEAR(y[i], expected * scale, 2e-6) << "n " << n << ", i " << i;
    }
    table().rotate(y.data(), n, scale, back.data());
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(back[i], x[i], 2e-6);
  }
}

TEST_P(RowOpsTest, Reductions) {
  Rng rng(6);
  for (size_t n : kLengths) {
    const auto x = RandomFloats(n, 3.0f, rng), y = RandomFloats(n, 3.0f, rng);
    double sum = 0, dot = 0, magnitude = 0;
    float largest = x[0];
    for (size_t i = 0; i < n; ++i) {
      sum += x[i];
      dot += double{x[i]} * y[i];
      magnitude += std::fabs(double{x[i]} * y[i]);
      largest = std::max(largest, x[i]);
    }
    EXPECT_NEAR(table().sum(x.data(), n), sum, 1e-10 * static_cast<double>(n));
    EXPECT_NEAR(table().dot(x.data(), y.data(), n), dot, 1e-6 * magnitude);
    EXPECT_EQ(table().max(x.data(), n), largest);
    EXPECT_EQ(x[table().argmax(x.data(), n)], largest);
  }
  EXPECT_EQ(table().max(nullptr, 0), -kInf);
  EXPECT_EQ(table().argmax(nullptr, 0), 0u);
}

TEST_P(RowOpsTest, ArgmaxTakesTheLowestOfEquals) {
  for (size_t n : {1u, 16u, 17u, 40u, 100u}) {
    for (size_t first = 0; first < n; ++first) {
      std::vector<float> x(n, -1.0f);
      for (size_t i = first; i < n; i += 3) x[i] = 2.0f;
      ASSERT_EQ(table().argmax(x.data(), n), first);
      if (first > 0) {
        x[0] = kNan;
        ASSERT_EQ(table().argmax(x.data(), n), first);
        ASSERT_EQ(table().max(x.data(), n), 2.0f);
      }
    }
  }
  const std::vector<float> nothing(20, kNan), low(20, -kInf);
  EXPECT_EQ(table().argmax(nothing.data(), 20), 0u);
  EXPECT_EQ(table().argmax(low.data(), 20), 0u);
}

TEST_P(RowOpsTest, HalfConversionsEqualThePortableDefinition) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(halves.size());
  table().f16_to_f32(halves.data(), halves.size(), floats.data());
  std::vector<uint16_t> back(halves.size());
  table().f32_to_f16(floats.data(), floats.size(), back.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = HalfToFloat(halves[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(floats[i]));
      continue;
    }
    ASSERT_EQ(floats[i], expected);
    ASSERT_EQ(back[i], halves[i]);
  }
  Rng rng(7);
  std::vector<float> x(10007);  // an odd length; values cover every exponent
  for (float& v : x) {
    const auto bits = static_cast<uint32_t>(rng());
    std::memcpy(&v, &bits, 4);
    if (std::isnan(v)) v = 1.0f;
  }
  std::vector<uint16_t> y(x.size());
  table().f32_to_f16(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], FloatToHalf(x[i])) << x[i];
}

INSTANTIATE_TEST_SUITE_P(Levels, RowOpsTest, ::testing::ValuesIn(AvailableIsas()),
                         testing::IsaTestName);

}  // namespace
}  // namespace rullama::cpu

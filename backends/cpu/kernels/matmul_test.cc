// Products, activation quantisation and dequantisation of every weight type on every level, against
// float64 sums over independently decoded weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/test_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

using testing::AvailableIsas;
using testing::Columns;
using testing::kBlockTypes;
using testing::kFloatTypes;
using testing::MakeColumns;
using testing::RandomWeights;
using testing::ReferenceRow;
using testing::Rng;

std::vector<DType> AllTypes() {
  std::vector<DType> types(std::begin(kBlockTypes), std::end(kBlockTypes));
  types.insert(types.end(), std::begin(kFloatTypes), std::end(kFloatTypes));
  return types;
}

struct Problem {
  DType dtype;
  size_t n, k, columns;
};

std::string Describe(Isa isa, const Problem& p) {
  return std::string(IsaName(isa)) + " " + std::string(NameOf(p.dtype)) +
         " n=" + std::to_string(p.n) + " k=" + std::to_string(p.k) +
         " m=" + std::to_string(p.columns);
}

using Kernel = void (*)(const MatMulArgs&);

class MatMulTest : public ::testing::TestWithParam<Isa> {
 protected:
  const KernelTable& table() const { return KernelsFor(GetParam()); }

  // Runs rows [begin, end) in pieces of `step` rows; the rest of y keeps the value 7.
  std::vector<float> Run(Kernel kernel, const Problem& p, const std::vector<uint8_t>& weights,
                         const uint8_t* x, size_t stride, size_t begin, size_t end,
                         size_t step) const {
    std::vector<float> y(p.columns * p.n, 7.0f);
    // gemm may be called directly with any number of columns.
    const size_t scratch_columns = std::max(p.columns, kGemmMinColumns);
    std::vector<uint8_t> scratch(MatMulScratchBytes(p.dtype, p.k, scratch_columns));
    for (size_t n = begin; n < end; n += step) {
      kernel({.weights = weights.data(),
              .row_bytes = RowBytes(p.dtype, p.k),
              .k = p.k,
              .n_begin = n,
              .n_end = std::min(n + step, end),
              .x = x,
              .x_stride = stride,
              .columns = p.columns,
              .y = y.data(),
              .y_stride = p.n,
              .scratch = scratch.data()});
    }
    return y;
  }

  void CheckProduct(const Problem& p, Rng& rng) const {
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const Columns columns = MakeColumns(table(), p.dtype, p.columns, p.k, rng);
    const WeightKernels* kernels = FindWeight(table(), p.dtype);
    ASSERT_NE(kernels, nullptr);
    const auto gemv =
        Run(kernels->gemv, p, weights, columns.bytes.data(), columns.stride, 0, p.n, p.n);
    const auto gemm =
        Run(kernels->gemm, p, weights, columns.bytes.data(), columns.stride, 0, p.n, p.n);
    for (size_t n = 0; n < p.n; ++n) {
      const auto row = ReferenceRow(p.dtype, &weights[n * RowBytes(p.dtype, p.k)], p.k);
      double largest = 0;
      for (double w : row) largest = std::max(largest, std::fabs(w));
      for (size_t m = 0; m < p.columns; ++m) {
        double sum = 0, magnitude = 0;
        for (size_t k = 0; k < p.k; ++k) {
          sum += row[k] * columns.seen[m * p.k + k];
          magnitude += largest * std::fabs(columns.seen[m * p.k + k]);
        }
        // Integer products are exact; what is left is float32 rounding of k / 16 terms, some of
        // them (offsets of unsigned codes) as large as the largest weight.
        const double tolerance = 2e-6 * magnitude;
        ASSERT_NEAR(gemv[m * p.n + n], sum, tolerance) << "gemv n=" << n << " m=" << m;
        ASSERT_NEAR(gemm[m * p.n + n], sum, tolerance) << "gemm n=" << n << " m=" << m;
      }
    }
  }
};

TEST_P(MatMulTest, MatchesFloat64OnEdgeShapes) {
  Rng rng(1);
  for (DType dtype : AllTypes()) {
    const size_t block = InfoOf(dtype).block_elements;
    // One block, odd counts, and for small blocks rows that end inside a chunk or a panel.
    const size_t ks[] = {block, 3 * block, block == 256 ? 1280u : (block == 32 ? 704u : 523u)};
    for (size_t k : ks) {
      for (size_t n : {1u, 7u, 37u}) {
        for (size_t columns : {1u, 2u, 5u}) CheckProduct({dtype, n, k, columns}, rng);
      }
    }
  }
}

TEST_P(MatMulTest, MatchesFloat64ForAnyNumberOfColumns) {
  Rng rng(2);
  for (DType dtype : AllTypes()) {
    for (size_t columns : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u, 33u}) {
      CheckProduct({dtype, 5, 512, columns}, rng);
    }
  }
}

TEST_P(MatMulTest, MatchesFloat64BeyondAColumnBlock) {
  Rng rng(3);
  CheckProduct({DType::kQ4_K, 3, 256, kColumnBlock + 3}, rng);
}

TEST_P(MatMulTest, RowsDoNotDependOnTheRange) {
  Rng rng(4);
  for (DType dtype : AllTypes()) {
    const Problem p{dtype, 67, 768, 6};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const Columns columns = MakeColumns(table(), p.dtype, p.columns, p.k, rng);
    const WeightKernels* kernels = FindWeight(table(), p.dtype);
    for (Kernel kernel : {kernels->gemv, kernels->gemm}) {
      const auto whole = Run(kernel, p, weights, columns.bytes.data(), columns.stride, 0, p.n, p.n);
      for (size_t step : {1u, 13u, 32u}) {
        EXPECT_EQ(whole,
                  Run(kernel, p, weights, columns.bytes.data(), columns.stride, 0, p.n, step));
      }
      // A range touches nothing outside of it.
      const auto part = Run(kernel, p, weights, columns.bytes.data(), columns.stride, 5, 40, 40);
      for (size_t m = 0; m < p.columns; ++m) {
        for (size_t n = 0; n < p.n; ++n) {
          const bool inside = n >= 5 && n < 40;
          ASSERT_EQ(part[m * p.n + n], inside ? whole[m * p.n + n] : 7.0f);
        }
      }
    }
  }
}

TEST_P(MatMulTest, ColumnsDoNotDependOnTheirNumber) {
  Rng rng(5);
  for (DType dtype : AllTypes()) {
    const Problem p{dtype, 9, 768, 11};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const Columns columns = MakeColumns(table(), p.dtype, p.columns, p.k, rng);
    const WeightKernels* kernels = FindWeight(table(), p.dtype);
    for (Kernel kernel : {kernels->gemv, kernels->gemm}) {
      const auto all = Run(kernel, p, weights, columns.bytes.data(), columns.stride, 0, p.n, p.n);
      for (size_t m = 0; m < p.columns; ++m) {
        const auto one = Run(kernel, {dtype, p.n, p.k, 1}, weights,
                             &columns.bytes[m * columns.stride], columns.stride, 0, p.n, p.n);
        const std::vector<float> column(all.begin() + m * p.n, all.begin() + (m + 1) * p.n);
        ASSERT_EQ(one, column) << m;
      }
    }
  }
}

TEST_P(MatMulTest, SwitchesAtTheStatedNumberOfColumns) {
  Rng rng(6);
  for (size_t count : {kGemmMinColumns - 1, kGemmMinColumns}) {
    const Problem p{DType::kQ4_K, 33, 512, count};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const Columns columns = MakeColumns(table(), p.dtype, p.columns, p.k, rng);
    const WeightKernels* kernels = FindWeight(table(), p.dtype);
    const Kernel expected = count < kGemmMinColumns ? kernels->gemv : kernels->gemm;
    std::vector<float> y(p.n * p.columns);
    std::vector<uint8_t> scratch(MatMulScratchBytes(p.dtype, p.k, p.columns));
    MatMul(table(), p.dtype,
           {.weights = weights.data(),
            .row_bytes = RowBytes(p.dtype, p.k),
            .k = p.k,
            .n_begin = 0,
            .n_end = p.n,
            .x = columns.bytes.data(),
            .x_stride = columns.stride,
            .columns = p.columns,
            .y = y.data(),
            .y_stride = p.n,
            .scratch = scratch.data()});
    EXPECT_EQ(y, Run(expected, p, weights, columns.bytes.data(), columns.stride, 0, p.n, p.n));
  }
}

// Normal activations with per-32 scales: the error of the whole product stays well under what
// scales per 256 reach (1.4e-2), for any weight type.
TEST_P(MatMulTest, ActivationRoundingIsSmall) {
  Rng rng(7);
  for (DType dtype : kBlockTypes) {
    const Problem p{dtype, 64, 1536, 1};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const Columns columns = MakeColumns(table(), p.dtype, p.columns, p.k, rng);
    const auto y = Run(FindWeight(table(), dtype)->gemv, p, weights, columns.bytes.data(),
                       columns.stride, 0, p.n, p.n);
    double error = 0, norm = 0;
    for (size_t n = 0; n < p.n; ++n) {
      const auto row = ReferenceRow(p.dtype, &weights[n * RowBytes(p.dtype, p.k)], p.k);
      double sum = 0;
      for (size_t k = 0; k < p.k; ++k) sum += row[k] * columns.x[k];
      error += (y[n] - sum) * (y[n] - sum);
      norm += sum * sum;
    }
    EXPECT_LT(std::sqrt(error / norm), 1e-2) << NameOf(dtype);
  }
}

TEST_P(MatMulTest, DequantizesExactly) {
  Rng rng(8);
  for (DType dtype : AllTypes()) {
    const size_t block = InfoOf(dtype).block_elements;
    for (size_t k : {block, 5 * block, block == 1 ? 37u : 9 * block}) {
      const auto row = RandomWeights(dtype, 1, k, rng);
      std::vector<float> out(k + 1, 7.0f);
      FindWeight(table(), dtype)->dequantize(row.data(), k, out.data());
      const auto expected = ReferenceRow(dtype, row.data(), k);
      double largest = 0;
      for (double w : expected) largest = std::max(largest, std::fabs(w));
      for (size_t i = 0; i < k; ++i) {
        // One product of two scales, one with the code, one sum with the minimum: three roundings.
        ASSERT_NEAR(out[i], expected[i], 3 * 0x1p-24 * 2 * largest) << NameOf(dtype) << " " << i;
      }
      EXPECT_EQ(out[k], 7.0f);
    }
  }
}

TEST_P(MatMulTest, Mxfp4ScalesReachTheSubnormals) {
  // 32 codes of 2 (value 1.0 at exponent 127), then the two exponents below the normal range.
  uint8_t block[17];
  std::memset(block, 0x22, sizeof(block));
  float out[32];
  for (const auto& [exponent, expected] :
       {std::pair{127, 1.0f}, {128, 2.0f}, {1, 0x1p-126f}, {0, 0x1p-127f}, {2, 0x1p-125f}}) {
    block[0] = static_cast<uint8_t>(exponent);
    FindWeight(table(), DType::kMXFP4)->dequantize(block, 32, out);
    EXPECT_EQ(out[0], expected) << exponent;
    EXPECT_EQ(out[31], expected) << exponent;
  }
}

// --- Activations ---------------------------------------------------------------------------------
struct View {
  const int8_t* codes;
  const float *scale, *sum32, *sum16;
};
View Look(const std::vector<float>& storage, size_t k) {
  const auto* codes = reinterpret_cast<const int8_t*>(storage.data());
  const float* scale = storage.data() + PaddedLength(k) / 4;
  return {codes, scale, scale + PaddedLength(k) / 32, scale + PaddedLength(k) / 16};
}

TEST_P(MatMulTest, QuantizesActivations) {
  Rng rng(9);
  for (size_t k : {32u, 64u, 256u, 704u, 1536u}) {
    auto x = testing::RandomFloats(k, 3.0f, rng);
    for (size_t i = 0; i < 32; ++i) x[i] = 0.0f;  // a block of zeros
    std::vector<float> storage(QuantizedRowBytes(k) / sizeof(float), 7.0f);
    table().quantize_row(x.data(), k, storage.data());
    const View view = Look(storage, k);
    for (size_t i = 0; i < PaddedLength(k); ++i) {
      const double value = i < k ? x[i] : 0.0;
      const double back = static_cast<double>(view.scale[i / 32]) * view.codes[i];
      ASSERT_GE(view.codes[i], -127);
      ASSERT_NEAR(back, value, 0.5 * view.scale[i / 32] * (1 + 1e-4)) << i;
    }
    for (size_t g = 0; g < PaddedLength(k) / 16; ++g) {
      int sum = 0;
      for (size_t i = 0; i < 16; ++i) sum += view.codes[16 * g + i];
      ASSERT_EQ(view.sum16[g], view.scale[g / 2] * static_cast<float>(sum));
    }
    for (size_t g = 0; g < PaddedLength(k) / 32; ++g) {
      int sum = 0;
      for (size_t i = 0; i < 32; ++i) sum += view.codes[32 * g + i];
      ASSERT_EQ(view.sum32[g], view.scale[g] * static_cast<float>(sum));
    }
  }
}

TEST_P(MatMulTest, QuantizedRowsAreTheSameOnEveryLevel) {
  Rng rng(10);
  const auto x = testing::RandomFloats(704, 3.0f, rng);
  std::vector<uint8_t> portable(QuantizedRowBytes(704)), here(QuantizedRowBytes(704));
  KernelsFor(Isa::kPortable).quantize_row(x.data(), 704, portable.data());
  table().quantize_row(x.data(), 704, here.data());
  EXPECT_EQ(portable, here);
}

TEST_P(MatMulTest, DamagedActivationsShowInTheProduct) {
  Rng rng(11);
  for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const Problem p{DType::kQ6_K, 2, 512, 1};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    Columns columns = MakeColumns(table(), p.dtype, 1, p.k, rng);
    columns.x[300] = bad;
    table().quantize_row(columns.x.data(), p.k, columns.bytes.data());
    for (Kernel kernel : {FindWeight(table(), p.dtype)->gemv, FindWeight(table(), p.dtype)->gemm}) {
      const auto y = Run(kernel, p, weights, columns.bytes.data(), columns.stride, 0, p.n, p.n);
      EXPECT_TRUE(std::isnan(y[0])) << bad;
      EXPECT_TRUE(std::isnan(y[1])) << bad;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MatMulTest, ::testing::ValuesIn(AvailableIsas()),
                         [](const auto& param) {
                           std::string name = IsaName(param.param);
                           std::erase(name, '-');
                           return name;
                         });

TEST(KernelTableTest, RefusesTypesWithoutKernels) {
  for (Isa isa : AvailableIsas()) {
    EXPECT_EQ(KernelsFor(isa).isa, isa);
    EXPECT_EQ(FindWeight(KernelsFor(isa), DType::kI32), nullptr);
    EXPECT_EQ(FindWeight(KernelsFor(isa), DType::kIQ2_XXS), nullptr);
    EXPECT_NE(FindWeight(KernelsFor(isa), DType::kQ4_K), nullptr);
  }
  EXPECT_TRUE(IsaAvailable(BestIsa()));
}

}  // namespace
}  // namespace rullama::cpu

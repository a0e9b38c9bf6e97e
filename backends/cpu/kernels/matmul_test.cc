// Products, activation quantisation and dequantisation of every weight type on every level, against
// float64 sums over independently decoded weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
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

std::vector<std::pair<DType, int>> TypesAndPlanes() {
  std::vector<std::pair<DType, int>> all;
  for (const DType dtype : kBlockTypes) {
    for (const int planes : {1, 2}) all.emplace_back(dtype, planes);
  }
  return all;
}

struct Problem {
  DType dtype;
  size_t n, k, columns;
  int planes = 2;
  bool packed = false;  // what the weights are
};

std::string Describe(Isa isa, const Problem& p) {
  return std::string(IsaName(isa)) + " " + std::string(NameOf(p.dtype)) +
         " n=" + std::to_string(p.n) + " k=" + std::to_string(p.k) +
         " m=" + std::to_string(p.columns) + " planes=" + std::to_string(p.planes) +
         (p.packed ? " packed" : "");
}

using Kernel = std::function<void(const MatMulArgs&)>;

class MatMulTest : public ::testing::TestWithParam<Isa> {
 protected:
  const KernelTable& table() const { return KernelsFor(GetParam()); }

  // Runs rows [begin, end) in pieces of `step` rows; the rest of y keeps the value 7.
  std::vector<float> Run(const Kernel& kernel, const Problem& p,
                         const std::vector<uint8_t>& weights, const Columns& columns, size_t begin,
                         size_t end, size_t step, size_t first_column = 0) const {
    std::vector<float> y(p.columns * p.n, 7.0f);
    // Kernels may be called directly with any number of columns.
    const size_t many = table().split_row == nullptr ? 0 : table().split_min_columns;
    const size_t scratch_columns = std::max({p.columns, table().gemm_min_columns, many});
    std::vector<uint8_t> scratch(MatMulScratchBytes(table(), p.dtype, p.k, scratch_columns));
    for (size_t n = begin; n < end; n += step) {
      kernel({.weights = weights.data(),
              .packed = p.packed,
              .row_bytes = RowBytes(p.dtype, p.k),
              .k = p.k,
              .n_begin = n,
              .n_end = std::min(n + step, end),
              .x = columns.bytes.data() + first_column * columns.stride,
              .x_stride = columns.stride,
              .columns = p.columns,
              .form = columns.form,
              .planes = p.planes,
              .y = y.data(),
              .y_stride = p.n,
              .scratch = scratch.data()});
    }
    return y;
  }

  // A kernel and what it reads.
  struct Case {
    std::string name;
    Kernel kernel;
    ActivationForm form;
  };
  std::vector<Case> Kernels(DType dtype) const {
    const WeightKernels* kernels = FindWeight(table(), dtype);
    std::vector<Case> cases = {{"gemv", kernels->gemv, ActivationForm::kCodes},
                               {"gemm", kernels->gemm, ActivationForm::kCodes}};
    if (kernels->split_gemm != nullptr) {
      cases.push_back({"split", kernels->split_gemm, ActivationForm::kBfloats});
    }
    return cases;
  }

  // Empty for a type that is never packed.
  std::vector<uint8_t> Pack(const Problem& p, const std::vector<uint8_t>& weights) const {
    const WeightKernels* kernels = FindWeight(table(), p.dtype);
    if (kernels->pack == nullptr) return {};
    std::vector<uint8_t> packed(weights.size());
    const size_t row_bytes = RowBytes(p.dtype, p.k);
    for (size_t n = 0; n < p.n; n += kPackedRows) {
      kernels->pack(&weights[n * row_bytes], row_bytes, p.k, &packed[n * row_bytes]);
    }
    return packed;
  }

  // Integer products are exact; what is left is float32 rounding of k / 16 terms, some of them
  // (offsets of unsigned codes) as large as the largest weight. A weight as two bf16 numbers is
  // within 2^-16, and so is a product that leaves out one of two low parts.
  static double Tolerance(DType dtype, ActivationForm form) {
    return form == ActivationForm::kBfloats && dtype != DType::kF32 ? 2 * 0x1p-16 : 2e-6;
  }

  void CheckProduct(const Problem& p, Rng& rng) const {
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(p.dtype)) {
      SCOPED_TRACE(Describe(GetParam(), p) + " " + c.name);
      const Columns columns = MakeColumns(table(), p.dtype, c.form, p.planes, p.columns, p.k, rng);
      CheckSums(p, weights, columns, Run(c.kernel, p, weights, columns, 0, p.n, p.n));
    }
  }

  static void CheckSums(const Problem& p, const std::vector<uint8_t>& weights,
                        const Columns& columns, const std::vector<float>& y) {
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
        ASSERT_NEAR(y[m * p.n + n], sum, Tolerance(p.dtype, columns.form) * magnitude)
            << "n=" << n << " m=" << m;
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
        for (size_t columns : {1u, 2u, 5u}) {
          for (int planes : {1, 2}) CheckProduct({dtype, n, k, columns, planes}, rng);
        }
      }
    }
  }
}

TEST_P(MatMulTest, MatchesFloat64ForAnyNumberOfColumns) {
  Rng rng(2);
  for (DType dtype : AllTypes()) {
    for (size_t columns : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u, 33u}) {
      for (int planes : {1, 2}) CheckProduct({dtype, 5, 512, columns, planes}, rng);
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
    for (const Case& c : Kernels(dtype)) {
      const Columns columns = MakeColumns(table(), p.dtype, c.form, p.planes, p.columns, p.k, rng);
      const auto whole = Run(c.kernel, p, weights, columns, 0, p.n, p.n);
      for (size_t step : {1u, 13u, 32u}) {
        EXPECT_EQ(whole, Run(c.kernel, p, weights, columns, 0, p.n, step));
      }
      // A range touches nothing outside of it.
      const auto part = Run(c.kernel, p, weights, columns, 5, 40, 40);
      for (size_t m = 0; m < p.columns; ++m) {
        for (size_t n = 0; n < p.n; ++n) {
          const bool inside = n >= 5 && n < 40;
          ASSERT_EQ(part[m * p.n + n], inside ? whole[m * p.n + n] : 7.0f);
        }
      }
    }
  }
}

TEST_P(MatMulTest, BlocksOfRowsAreAllComputed) {
  Rng rng(12);
  CheckProduct({DType::kQ4_K, 2 * kBlockRows + 37, 256, 9}, rng);
  CheckProduct({DType::kQ6_K, kBlockRows + 1, 1280, 40}, rng);
}

TEST_P(MatMulTest, ColumnsDoNotDependOnTheirNumber) {
  Rng rng(5);
  for (DType dtype : AllTypes()) {
    const Problem p{dtype, 9, 768, 43};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(dtype)) {
      const Columns columns = MakeColumns(table(), p.dtype, c.form, p.planes, p.columns, p.k, rng);
      const auto all = Run(c.kernel, p, weights, columns, 0, p.n, p.n);
      for (size_t m = 0; m < p.columns; ++m) {
        const auto one = Run(c.kernel, {dtype, p.n, p.k, 1}, weights, columns, 0, p.n, p.n, m);
        const std::vector<float> column(all.begin() + m * p.n, all.begin() + (m + 1) * p.n);
        ASSERT_EQ(one, column) << m;
      }
    }
  }
}

std::vector<DType> PackedTypes(const KernelTable& table) {
  std::vector<DType> types;
  for (const DType dtype : kBlockTypes) {
    if (FindWeight(table, dtype)->pack != nullptr) types.push_back(dtype);
  }
  return types;
}

TEST_P(MatMulTest, FilesOfUsualTypesArePacked) {
  EXPECT_THAT(PackedTypes(table()),
              ::testing::UnorderedElementsAre(DType::kQ4_0, DType::kQ8_0, DType::kQ4_K,
                                              DType::kQ5_K, DType::kQ6_K));
}

TEST_P(MatMulTest, PackedRowsMatchFloat64ForFewColumns) {
  Rng rng(14);
  for (const DType dtype : PackedTypes(table())) {
    // One block, and for small blocks rows that end inside a chunk.
    const size_t block = InfoOf(dtype).block_elements;
    for (const size_t k : {block, block == 256 ? size_t{1280} : size_t{704}}) {
      for (const size_t columns : {1u, 2u, 3u, 4u, 5u, 7u}) {
        for (const int planes : {1, 2}) {
          const Problem p{dtype, 2 * kPanelRows, k, columns, planes, true};
          SCOPED_TRACE(Describe(GetParam(), p));
          const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
          const Columns x =
              MakeColumns(table(), dtype, ActivationForm::kCodes, planes, columns, k, rng);
          CheckSums(
              p, weights, x,
              Run(FindWeight(table(), dtype)->packed_gemv, p, Pack(p, weights), x, 0, p.n, p.n));
        }
      }
    }
  }
}

TEST_P(MatMulTest, PackedRowsMakeTheSamePanels) {
  Rng rng(15);
  for (const DType dtype : PackedTypes(table())) {
    const size_t k = InfoOf(dtype).block_elements == 256 ? 1280 : 704;
    const Problem p{dtype, kBlockRows + kPanelRows, k, 9};
    Problem packed = p;
    packed.packed = true;
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(dtype)) {
      if (c.name == "gemv") continue;
      SCOPED_TRACE(Describe(GetParam(), packed) + " " + c.name);
      const Columns x = MakeColumns(table(), dtype, c.form, p.planes, p.columns, p.k, rng);
      EXPECT_EQ(Run(c.kernel, p, weights, x, 0, p.n, p.n),
                Run(c.kernel, packed, Pack(p, weights), x, 0, p.n, p.n));
    }
  }
}

TEST_P(MatMulTest, PackedRowsDoNotDependOnTheRangeOrOtherColumns) {
  Rng rng(16);
  for (const DType dtype : PackedTypes(table())) {
    const Problem p{dtype, 4 * kPanelRows, 768, 7, 2, true};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto kernel = FindWeight(table(), dtype)->packed_gemv;
    const auto weights = Pack(p, RandomWeights(p.dtype, p.n, p.k, rng));
    const Columns x = MakeColumns(table(), dtype, ActivationForm::kCodes, 2, p.columns, p.k, rng);
    const auto whole = Run(kernel, p, weights, x, 0, p.n, p.n);
    EXPECT_EQ(whole, Run(kernel, p, weights, x, 0, p.n, kPanelRows));
    const auto part = Run(kernel, p, weights, x, kPanelRows, 3 * kPanelRows, 2 * kPanelRows);
    for (size_t m = 0; m < p.columns; ++m) {
      for (size_t n = 0; n < p.n; ++n) {
        const bool inside = n >= kPanelRows && n < 3 * kPanelRows;
        ASSERT_EQ(part[m * p.n + n], inside ? whole[m * p.n + n] : 7.0f);
      }
      const auto one = Run(kernel, {dtype, p.n, p.k, 1, 2, true}, weights, x, 0, p.n, p.n, m);
      ASSERT_TRUE(std::equal(one.begin(), one.end(), &whole[m * p.n])) << m;
    }
  }
}

TEST_P(MatMulTest, PackedRowsDequantizeTheSame) {
  Rng rng(17);
  for (const DType dtype : PackedTypes(table())) {
    const size_t block = InfoOf(dtype).block_elements;
    const Problem p{dtype, kPackedRows, 9 * block, 1};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const auto packed = Pack(p, weights);
    const WeightKernels* kernels = FindWeight(table(), dtype);
    std::vector<float> row(p.k);
    for (size_t n = 0; n < p.n; ++n) {
      kernels->dequantize(&weights[n * RowBytes(dtype, p.k)], p.k, row.data());
      for (const auto& [first, count] : {std::pair{size_t{0}, p.k}, {2 * block, 3 * block}}) {
        std::vector<float> part(count + 1, 7.0f);
        kernels->dequantize_packed(packed.data(), n, p.k, first, count, part.data());
        ASSERT_TRUE(std::equal(part.begin(), part.end() - 1, &row[first])) << NameOf(dtype);
        EXPECT_EQ(part[count], 7.0f);
      }
    }
  }
}

TEST_P(MatMulTest, SwitchesAtTheStatedNumbersOfColumns) {
  Rng rng(6);
  const size_t few = table().gemm_min_columns;
  const size_t many = table().split_min_columns;
  EXPECT_EQ(many == SIZE_MAX, table().split_row == nullptr);
  std::vector<std::pair<size_t, std::string>> expectations = {{few - 1, "gemv"}, {few, "gemm"}};
  if (many != SIZE_MAX) {
    expectations.emplace_back(many - 1, "gemm");
    expectations.emplace_back(many, "split");
  }
  for (const DType dtype : {DType::kQ4_K, DType::kF16}) {
    for (const auto& [count, name] : expectations) {
      const Problem p{dtype, 33, 512, count};
      SCOPED_TRACE(Describe(GetParam(), p) + " " + name);
      const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
      const Columns columns =
          MakeColumns(table(), p.dtype, FormFor(table(), count), p.planes, p.columns, p.k, rng);
      const auto cases = Kernels(p.dtype);
      const auto expected = std::ranges::find(cases, name, &Case::name);
      ASSERT_NE(expected, cases.end());
      EXPECT_EQ(columns.form, expected->form);
      const auto y = Run([&](const MatMulArgs& args) { MatMul(table(), dtype, args); }, p, weights,
                         columns, 0, p.n, p.n);
      EXPECT_EQ(y, Run(expected->kernel, p, weights, columns, 0, p.n, p.n));
    }
  }
}

// Normal activations with per-32 scales: with one plane the error of the whole product stays well
// under what scales per 256 reach (1.4e-2), for any weight type, and the second plane has 257 times
// as many steps.
TEST_P(MatMulTest, ActivationRoundingIsSmall) {
  Rng rng(7);
  for (const auto& [dtype, planes] : TypesAndPlanes()) {
    const Problem p{dtype, 64, 1536, 1, planes};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const Columns columns =
        MakeColumns(table(), p.dtype, ActivationForm::kCodes, p.planes, p.columns, p.k, rng);
    const auto y = Run(FindWeight(table(), dtype)->gemv, p, weights, columns, 0, p.n, p.n);
    double error = 0, norm = 0;
    for (size_t n = 0; n < p.n; ++n) {
      const auto row = ReferenceRow(p.dtype, &weights[n * RowBytes(p.dtype, p.k)], p.k);
      double sum = 0;
      for (size_t k = 0; k < p.k; ++k) sum += row[k] * columns.x[k];
      error += (y[n] - sum) * (y[n] - sum);
      norm += sum * sum;
    }
    EXPECT_LT(std::sqrt(error / norm), planes == 1 ? 1e-2 : 1e-2 / 200) << Describe(GetParam(), p);
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
  const int8_t *high, *low;
  const float *scale, *sum32;
  const int32_t *codes32, *codes16;
};
View Look(const std::vector<float>& storage, size_t k, int planes) {
  const auto* codes = reinterpret_cast<const int8_t*>(storage.data());
  const float* scale = storage.data() + PaddedLength(k) / 4 * static_cast<size_t>(planes);
  const auto* sums = reinterpret_cast<const int32_t*>(scale + PaddedLength(k) / 16);
  return {codes, codes + PaddedLength(k),    scale, scale + PaddedLength(k) / 32,
          sums,  sums + PaddedLength(k) / 32};
}

void CheckQuantizedRow(const KernelTable& table, size_t k, int planes, Rng& rng) {
  auto x = testing::RandomFloats(k, 3.0f, rng);
  for (size_t i = 0; i < 32; ++i) x[i] = 0.0f;  // a block of zeros
  std::vector<float> storage(ActivationRowBytes(ActivationForm::kCodes, k, planes) / sizeof(float),
                             7.0f);
  table.quantize_row(x.data(), k, planes, storage.data());
  const View view = Look(storage, k, planes);
  std::vector<int> codes;
  for (size_t i = 0; i < PaddedLength(k); ++i) {
    codes.push_back(planes == 1 ? view.high[i] : 256 * view.high[i] + view.low[i]);
    // Half a step, and a whole one more where a low byte of 128 was not to be had.
    const double steps = planes == 2 && std::abs(view.low[i]) == 127 ? 1.5 : 0.5;
    const double value = i < k ? x[i] : 0.0;
    ASSERT_GE(view.high[i], -127);
    ASSERT_TRUE(planes == 1 || view.low[i] >= -127);
    // In steps, rounding of the scale and of its reciprocal is 2^-22 of the largest code.
    ASSERT_NEAR(static_cast<double>(view.scale[i / 32]) * codes[i], value,
                (steps + 32639 * 0x1p-22) * view.scale[i / 32])
        << i;
  }
  for (size_t g = 0; g < PaddedLength(k) / 16; ++g) {
    const int sum = std::accumulate(&codes[16 * g], &codes[16 * g] + 16, 0);
    ASSERT_EQ(view.codes16[g], sum);
  }
  for (size_t g = 0; g < PaddedLength(k) / 32; ++g) {
    const int sum = std::accumulate(&codes[32 * g], &codes[32 * g] + 32, 0);
    ASSERT_EQ(view.codes32[g], sum);
    ASSERT_EQ(view.sum32[g], view.scale[g] * static_cast<float>(sum));
  }
}

TEST_P(MatMulTest, QuantizesActivations) {
  Rng rng(9);
  for (size_t k : {32u, 64u, 256u, 704u, 1536u}) {
    for (int planes : {1, 2}) CheckQuantizedRow(table(), k, planes, rng);
  }
}

TEST_P(MatMulTest, QuantizedRowsAreTheSameOnEveryLevel) {
  Rng rng(10);
  const auto x = testing::RandomFloats(704, 3.0f, rng);
  for (int planes : {1, 2}) {
    std::vector<uint8_t> portable(ActivationRowBytes(ActivationForm::kCodes, 704, planes));
    std::vector<uint8_t> here(portable.size());
    KernelsFor(Isa::kPortable).quantize_row(x.data(), 704, planes, portable.data());
    table().quantize_row(x.data(), 704, planes, here.data());
    EXPECT_EQ(portable, here);
  }
}

TEST_P(MatMulTest, SplitsActivations) {
  if (table().split_row == nullptr) {
    EXPECT_EQ(FormFor(table(), SIZE_MAX - 1), ActivationForm::kCodes);
    return;
  }
  Rng rng(13);
  for (size_t k : {32u, 704u}) {
    const auto x = testing::RandomFloats(k, 3.0f, rng);
    for (int planes : {1, 2}) {
      std::vector<uint8_t> row(ActivationRowBytes(ActivationForm::kBfloats, k, planes), 7);
      table().split_row(x.data(), k, planes, row.data());
      for (size_t i = 0; i < PaddedLength(k); ++i) {
        const double value = i < k ? x[i] : 0.0;
        // Eight bits of each number, rounded to nearest: 2^-8 is left after the first.
        ASSERT_NEAR(testing::ActivationValue(row.data(), ActivationForm::kBfloats, k, planes, i),
                    value, (planes == 1 ? 0x1p-8 : 0x1p-16) * std::fabs(value))
            << i;
      }
    }
  }
}

TEST_P(MatMulTest, DamagedActivationsShowInTheProduct) {
  Rng rng(11);
  for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const Problem p{DType::kQ6_K, 2, 512, 1};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(p.dtype)) {
      Columns columns = MakeColumns(table(), p.dtype, c.form, p.planes, 1, p.k, rng);
      columns.x[300] = bad;
      MakeActivationRow(table(), c.form, columns.x.data(), p.k, p.planes, columns.bytes.data());
      const auto y = Run(c.kernel, p, weights, columns, 0, p.n, p.n);
      EXPECT_TRUE(std::isnan(y[0])) << c.name << " " << bad;
      EXPECT_TRUE(std::isnan(y[1])) << c.name << " " << bad;
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

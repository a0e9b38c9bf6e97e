// Compares products, activation quantisation and dequantisation of every weight type on every level
// with float64 sums over independently decoded weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/test_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rullama::cpu {
namespace {

using testing::Activations;
using testing::AvailableIsas;
using testing::kBlockTypes;
using testing::kDecodedTypes;
using testing::kFloatTypes;
using testing::MakeActivations;
using testing::RandomWeights;
using testing::ReferenceRow;
using testing::Rng;

constexpr ActivationBits kAllBits[] = {ActivationBits::k8, ActivationBits::k16};

std::vector<DType> AllTypes() {
  std::vector<DType> types(std::begin(kBlockTypes), std::end(kBlockTypes));
  types.insert(types.end(), std::begin(kFloatTypes), std::end(kFloatTypes));
  return types;
}

std::vector<std::pair<DType, ActivationBits>> TypesAndBits() {
  std::vector<std::pair<DType, ActivationBits>> all;
  for (const DType dtype : kBlockTypes) {
    for (const ActivationBits bits : kAllBits) all.emplace_back(dtype, bits);
  }
  return all;
}

struct Problem {
  DType dtype;
  size_t n, k, batch;
  ActivationBits bits = ActivationBits::k16;
  bool packed = false;
};

std::string Describe(Isa isa, const Problem& p) {
  return std::string(IsaName(isa)) + " " + std::string(NameOf(p.dtype)) +
         " n=" + std::to_string(p.n) + " k=" + std::to_string(p.k) +
         " m=" + std::to_string(p.batch) + " parts=" + std::to_string(PartCount(p.bits)) +
         (p.packed ? " packed" : "");
}

using Kernel = std::function<void(const MatMulArgs&)>;

class MatMulTest : public ::testing::TestWithParam<Isa> {
 protected:
  const KernelTable& table() const { return KernelsFor(GetParam()); }

  // Runs rows [begin, end) in pieces of `step` rows; the rest of y keeps the value 7.
  std::vector<float> Run(const Kernel& kernel, const Problem& p,
                         const std::vector<uint8_t>& weights, const Activations& x, size_t begin,
                         size_t end, size_t step, size_t first_m = 0) const {
    std::vector<float> y(p.batch * p.n, 7.0f);
    // Tests call kernels directly with batch sizes for which MatMul() selects another one.
    const size_t many = table().split_row == nullptr ? 0 : table().split_min_batch;
    const size_t max_batch = std::max({p.batch, table().gemm_min_batch, many});
    std::vector<uint8_t> scratch(MatMulScratchBytes(table(), p.dtype, p.k, max_batch));
    for (size_t n = begin; n < end; n += step) {
      kernel({.weights = weights.data(),
              .packed = p.packed,
              .row_bytes = static_cast<size_t>(RowBytes(p.dtype, p.k)),
              .k = p.k,
              .n_begin = n,
              .n_end = std::min(n + step, end),
              .x = x.bytes.data() + first_m * x.stride,
              .x_stride = x.stride,
              .batch = p.batch,
              .format = x.format,
              .activation_bits = p.bits,
              .y = y.data(),
              .y_stride = p.n,
              .scratch = scratch.data()});
    }
    return y;
  }

  // A kernel and the format of the activations that it reads.
  struct Case {
    std::string name;
    Kernel kernel;
    ActivationFormat format;
  };
  std::vector<Case> Kernels(DType dtype) const {
    const WeightKernels* kernels = FindWeight(table(), dtype);
    const ActivationFormat format = FormatFor(table(), dtype, 1);
    std::vector<Case> cases = {{"gemv", kernels->gemv, format}, {"gemm", kernels->gemm, format}};
    if (kernels->split_gemm != nullptr) {
      cases.push_back({"split", kernels->split_gemm, ActivationFormat::kSplitBf16});
    }
    return cases;
  }

  // Empty for a type that is never packed.
  std::vector<uint8_t> Pack(const Problem& p, const std::vector<uint8_t>& weights) const {
    const WeightKernels* kernels = FindWeight(table(), p.dtype);
    if (kernels->pack == nullptr) return {};
    std::vector<uint8_t> packed(weights.size());
    const auto row_bytes = static_cast<size_t>(RowBytes(p.dtype, p.k));
    for (size_t n = 0; n < p.n; n += kPackedRows) {
      kernels->pack(&weights[n * row_bytes], row_bytes, p.k, &packed[n * row_bytes]);
    }
    return packed;
  }

  // Integer products are exact, so the error is the float32 rounding of k / 16 terms, some of them
  // (offsets of unsigned quants) as large as the largest weight. Splitting a weight into two bf16
  // numbers and leaving out the product of both low parts each have a relative error of 2^-16;
  // nothing is left out with BF16 weights.
  static double Tolerance(DType dtype, ActivationFormat format) {
    const bool exact = dtype == DType::kF32 || dtype == DType::kBF16;
    return format == ActivationFormat::kSplitBf16 && !exact ? 2 * 0x1p-16 : 2e-6;
  }

  void CheckProduct(const Problem& p, Rng& rng) const {
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(p.dtype)) {
      SCOPED_TRACE(Describe(GetParam(), p) + " " + c.name);
      const Activations x = MakeActivations(table(), p.dtype, c.format, p.bits, p.batch, p.k, rng);
      CheckSums(p, weights, x, Run(c.kernel, p, weights, x, 0, p.n, p.n));
    }
  }

  static void CheckSums(const Problem& p, const std::vector<uint8_t>& weights, const Activations& x,
                        const std::vector<float>& y) {
    for (size_t n = 0; n < p.n; ++n) {
      const auto row =
          ReferenceRow(p.dtype, &weights[static_cast<size_t>(n * RowBytes(p.dtype, p.k))], p.k);
      double largest = 0;
      for (double w : row) largest = std::max(largest, std::fabs(w));
      for (size_t m = 0; m < p.batch; ++m) {
        double sum = 0, magnitude = 0;
        for (size_t k = 0; k < p.k; ++k) {
          sum += row[k] * x.seen[m * p.k + k];
          magnitude += largest * std::fabs(x.seen[m * p.k + k]);
        }
        ASSERT_NEAR(y[m * p.n + n], sum, Tolerance(p.dtype, x.format) * magnitude)
            << "n=" << n << " m=" << m;
      }
    }
  }
};

TEST_P(MatMulTest, MatchesFloat64OnEdgeShapes) {
  Rng rng(1);
  for (DType dtype : AllTypes()) {
    const size_t block = InfoOf(dtype).block_elements;
    // One block, odd numbers of blocks, and for small blocks rows that end inside a chunk or panel.
    const size_t ks[] = {block, 3 * block, block == 256 ? 1280u : (block == 32 ? 704u : 523u)};
    for (size_t k : ks) {
      for (size_t n : {1u, 7u, 37u}) {
        for (size_t batch : {1u, 2u, 5u}) {
          for (const ActivationBits bits : kAllBits) CheckProduct({dtype, n, k, batch, bits}, rng);
        }
      }
    }
  }
}

TEST_P(MatMulTest, DecodedTypesMatchFloat64) {
  Rng rng(8);
  for (const DType dtype : kDecodedTypes) {
    EXPECT_EQ(FormatFor(table(), dtype, 1), ActivationFormat::kFloat32);
    for (const size_t k : {256u, 768u}) {
      for (const size_t n : {1u, 37u}) {
        for (const size_t batch : {1u, 5u}) CheckProduct({dtype, n, k, batch}, rng);
      }
    }
  }
}

TEST_P(MatMulTest, MatchesFloat64ForAnyBatchSize) {
  Rng rng(2);
  for (DType dtype : AllTypes()) {
    for (size_t batch : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u, 33u}) {
      for (const ActivationBits bits : kAllBits) CheckProduct({dtype, 5, 512, batch, bits}, rng);
    }
  }
}

TEST_P(MatMulTest, MatchesFloat64BeyondABatchBlock) {
  Rng rng(3);
  CheckProduct({DType::kQ4_K, 3, 256, kBatchBlock + 3}, rng);
}

TEST_P(MatMulTest, RowsDoNotDependOnTheRange) {
  Rng rng(4);
  for (DType dtype : AllTypes()) {
    const Problem p{dtype, 67, 768, 6};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(dtype)) {
      const Activations x = MakeActivations(table(), p.dtype, c.format, p.bits, p.batch, p.k, rng);
      const auto whole = Run(c.kernel, p, weights, x, 0, p.n, p.n);
      for (size_t step : {1u, 13u, 32u}) {
        EXPECT_EQ(whole, Run(c.kernel, p, weights, x, 0, p.n, step));
      }
      // A call writes nothing outside its range.
      const auto part = Run(c.kernel, p, weights, x, 5, 40, 40);
      for (size_t m = 0; m < p.batch; ++m) {
        for (size_t n = 0; n < p.n; ++n) {
          const bool inside = n >= 5 && n < 40;
          ASSERT_EQ(part[m * p.n + n], inside ? whole[m * p.n + n] : 7.0f);
        }
      }
    }
  }
}

TEST_P(MatMulTest, ComputesEveryBlockOfRows) {
  Rng rng(12);
  CheckProduct({DType::kQ4_K, 2 * kBlockRows + 37, 256, 9}, rng);
  CheckProduct({DType::kQ6_K, kBlockRows + 1, 1280, 40}, rng);
  CheckProduct({DType::kQ4_K, kSplitBlockRows + 37, 768, 130}, rng);
  CheckProduct({DType::kF16, kSplitBlockRows + 37, 320, 130}, rng);
  CheckProduct({DType::kQ6_K, kSplitBlockRows + 5, 256, kBatchBlock + 3}, rng);
}

TEST_P(MatMulTest, BatchRowsDoNotDependOnTheBatchSize) {
  Rng rng(5);
  for (DType dtype : AllTypes()) {
    const Problem p{dtype, 9, 768, 43};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(dtype)) {
      const Activations x = MakeActivations(table(), p.dtype, c.format, p.bits, p.batch, p.k, rng);
      const auto all = Run(c.kernel, p, weights, x, 0, p.n, p.n);
      for (size_t m = 0; m < p.batch; ++m) {
        const auto one = Run(c.kernel, {dtype, p.n, p.k, 1}, weights, x, 0, p.n, p.n, m);
        const std::vector<float> row(all.begin() + m * p.n, all.begin() + (m + 1) * p.n);
        ASSERT_EQ(one, row) << m;
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

TEST_P(MatMulTest, PacksTheCommonTypes) {
  EXPECT_THAT(PackedTypes(table()),
              ::testing::UnorderedElementsAre(DType::kQ4_0, DType::kQ5_0, DType::kQ8_0,
                                              DType::kQ4_K, DType::kQ5_K, DType::kQ6_K));
}

TEST_P(MatMulTest, PackedRowsMatchFloat64ForSmallBatches) {
  Rng rng(14);
  for (const DType dtype : PackedTypes(table())) {
    // One block, and for small blocks rows that end inside a chunk.
    const size_t block = InfoOf(dtype).block_elements;
    for (const size_t k : {block, block == 256 ? size_t{1280} : size_t{704}}) {
      for (const size_t batch : {1u, 2u, 3u, 4u, 5u, 7u}) {
        for (const ActivationBits bits : kAllBits) {
          const Problem p{dtype, 2 * kPanelRows, k, batch, bits, true};
          SCOPED_TRACE(Describe(GetParam(), p));
          const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
          const Activations x =
              MakeActivations(table(), dtype, ActivationFormat::kInt8Blocks, bits, batch, k, rng);
          CheckSums(
              p, weights, x,
              Run(FindWeight(table(), dtype)->packed_gemv, p, Pack(p, weights), x, 0, p.n, p.n));
        }
      }
    }
  }
}

TEST_P(MatMulTest, PackedRowsGiveTheSamePanels) {
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
      const Activations x = MakeActivations(table(), dtype, c.format, p.bits, p.batch, p.k, rng);
      EXPECT_EQ(Run(c.kernel, p, weights, x, 0, p.n, p.n),
                Run(c.kernel, packed, Pack(p, weights), x, 0, p.n, p.n));
    }
  }
}

TEST_P(MatMulTest, PackedRowsDoNotDependOnTheRangeOrOtherBatchRows) {
  Rng rng(16);
  for (const DType dtype : PackedTypes(table())) {
    const Problem p{dtype, 4 * kPanelRows, 768, 7, ActivationBits::k16, true};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto kernel = FindWeight(table(), dtype)->packed_gemv;
    const auto weights = Pack(p, RandomWeights(p.dtype, p.n, p.k, rng));
    const Activations x =
        MakeActivations(table(), dtype, ActivationFormat::kInt8Blocks, p.bits, p.batch, p.k, rng);
    const auto whole = Run(kernel, p, weights, x, 0, p.n, p.n);
    EXPECT_EQ(whole, Run(kernel, p, weights, x, 0, p.n, kPanelRows));
    const auto part = Run(kernel, p, weights, x, kPanelRows, 3 * kPanelRows, 2 * kPanelRows);
    for (size_t m = 0; m < p.batch; ++m) {
      for (size_t n = 0; n < p.n; ++n) {
        const bool inside = n >= kPanelRows && n < 3 * kPanelRows;
        ASSERT_EQ(part[m * p.n + n], inside ? whole[m * p.n + n] : 7.0f);
      }
      const auto one =
          Run(kernel, {dtype, p.n, p.k, 1, ActivationBits::k16, true}, weights, x, 0, p.n, p.n, m);
      ASSERT_TRUE(std::equal(one.begin(), one.end(), &whole[m * p.n])) << m;
    }
  }
}

TEST_P(MatMulTest, PackedRowsGiveTheSameBytesInBothKernels) {
  Rng rng(17);
  for (const DType dtype : PackedTypes(table())) {
    const size_t k = InfoOf(dtype).block_elements == 256 ? 1280 : 704;
    for (const ActivationBits bits : kAllBits) {
      const Problem p{dtype, kBlockRows + kPanelRows, k, 19, bits, true};
      SCOPED_TRACE(Describe(GetParam(), p));
      const auto weights = Pack(p, RandomWeights(p.dtype, p.n, p.k, rng));
      const Activations x =
          MakeActivations(table(), dtype, ActivationFormat::kInt8Blocks, bits, p.batch, p.k, rng);
      const WeightKernels& kernels = *FindWeight(table(), dtype);
      EXPECT_EQ(Run(kernels.packed_gemv, p, weights, x, 0, p.n, p.n),
                Run(kernels.gemm, p, weights, x, 0, p.n, p.n));
    }
  }
}

// The matrix unit's integer products give the bytes of the vector level; other levels are compared
// with themselves.
TEST_P(MatMulTest, GemmGivesTheBytesOfTheVectorLevel) {
  const Isa other = GetParam() == Isa::kAmx ? Isa::kAvx512Vnni : GetParam();
  Rng rng(19);
  for (const auto& [dtype, bits] : TypesAndBits()) {
    for (const size_t batch : {1U, 16U, 17U, 33U}) {
      const Problem p{dtype, kBlockRows + 33, 768, batch, bits};
      SCOPED_TRACE(Describe(GetParam(), p));
      const auto weights = RandomWeights(dtype, p.n, p.k, rng);
      const Activations x =
          MakeActivations(table(), dtype, ActivationFormat::kInt8Blocks, bits, batch, p.k, rng);
      EXPECT_EQ(Run(FindWeight(table(), dtype)->gemm, p, weights, x, 0, p.n, p.n),
                Run(FindWeight(KernelsFor(other), dtype)->gemm, p, weights, x, 0, p.n, p.n));
    }
  }
}

TEST_P(MatMulTest, OneOrderOfSumsGivesTheSameBytesForAnyBatchSize) {
  Rng rng(18);
  const KernelTable one_order = WithOneOrderOfSums(table());
  const std::vector<DType> packed_types = PackedTypes(table());
  for (const DType dtype : AllTypes()) {
    for (const bool packed : {false, true}) {
      if (packed && std::ranges::find(packed_types, dtype) == packed_types.end()) continue;
      constexpr size_t kBatch = 130;
      const Problem p{dtype, kPanelRows, 768, kBatch, ActivationBits::k16, packed};
      SCOPED_TRACE(Describe(GetParam(), p));
      auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
      if (packed) weights = Pack(p, weights);
      const ActivationFormat format = FormatFor(one_order, dtype, 1);
      ASSERT_EQ(FormatFor(one_order, dtype, kBatch), format);
      const Activations x = MakeActivations(table(), dtype, format, p.bits, p.batch, p.k, rng);
      const Kernel product = [&](const MatMulArgs& args) { MatMul(one_order, dtype, args); };
      const auto all = Run(product, p, weights, x, 0, p.n, p.n);
      for (const size_t batch : {1U, 4U, 5U, 15U, 16U}) {
        const auto few =
            Run(product, {dtype, p.n, p.k, batch, p.bits, packed}, weights, x, 0, p.n, p.n);
        EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin())) << batch;
      }
    }
  }
}

TEST_P(MatMulTest, KernelsOfTheLargestBatchGiveTheSameBytesForAnyBatchSize) {
  Rng rng(23);
  constexpr size_t kBatch = 130;
  const KernelTable largest = WithKernelsOfLargest(table(), kBatch);
  for (const DType dtype : AllTypes()) {
    const Problem p{dtype, kPanelRows, 768, kBatch, ActivationBits::k16};
    SCOPED_TRACE(Describe(GetParam(), p));
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const ActivationFormat format = FormatFor(table(), dtype, kBatch);
    for (const size_t batch : {1U, 4U, 5U, 17U})
      ASSERT_EQ(FormatFor(largest, dtype, batch), format);
    const Activations x = MakeActivations(table(), dtype, format, p.bits, p.batch, p.k, rng);
    const Kernel product = [&](const MatMulArgs& args) { MatMul(largest, dtype, args); };
    const Kernel plain = [&](const MatMulArgs& args) { MatMul(table(), dtype, args); };
    const auto all = Run(plain, p, weights, x, 0, p.n, p.n);
    for (const size_t batch : {1U, 4U, 5U, 17U}) {
      const auto few = Run(product, {dtype, p.n, p.k, batch, p.bits}, weights, x, 0, p.n, p.n);
      EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin())) << batch;
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
      kernels->dequantize(&weights[static_cast<size_t>(n * RowBytes(dtype, p.k))], p.k, row.data());
      for (const auto& [first, count] : {std::pair{size_t{0}, p.k}, {2 * block, 3 * block}}) {
        std::vector<float> part(count + 1, 7.0f);
        kernels->dequantize_packed(packed.data(), n, p.k, first, count, part.data());
        ASSERT_TRUE(std::equal(part.begin(), part.end() - 1, &row[first])) << NameOf(dtype);
        EXPECT_EQ(part[count], 7.0f);
      }
    }
  }
}

// Kernels that only say that they were called.
const char* called_kernel = nullptr;
void CalledGemv(const MatMulArgs& /*args*/) { called_kernel = "packed_gemv"; }
void CalledGemm(const MatMulArgs& /*args*/) { called_kernel = "gemm"; }

TEST_P(MatMulTest, MultipliesPackedRowsByTheKernelForTheirNumber) {
  KernelTable marked = table();
  size_t packed_types = 0;
  for (WeightKernels& kernels : marked.weights) {
    if (kernels.packed_gemv == nullptr) continue;
    kernels.packed_gemv = &CalledGemv;
    kernels.gemm = &CalledGemm;
    const auto type = static_cast<DType>(&kernels - marked.weights);
    const size_t many = kernels.packed_gemm_min_batch;
    SCOPED_TRACE(std::string(NameOf(type)) + " " + std::to_string(many));
    ASSERT_GT(many, 1U);
    for (const size_t batch : {size_t{1}, many - 1}) {
      MatMul(marked, type, {.packed = true, .batch = batch});
      EXPECT_STREQ(called_kernel, "packed_gemv") << batch;
    }
    if (many != SIZE_MAX) MatMul(marked, type, {.packed = true, .batch = many});
    EXPECT_STREQ(called_kernel, many == SIZE_MAX ? "packed_gemv" : "gemm");
    ++packed_types;
  }
  EXPECT_EQ(packed_types, 6U);
}

TEST_P(MatMulTest, SwitchesKernelsAtTheStatedBatchSizes) {
  Rng rng(6);
  const size_t few = table().gemm_min_batch;
  const size_t many = table().split_min_batch;
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
      const Activations x = MakeActivations(table(), p.dtype, FormatFor(table(), p.dtype, count),
                                            p.bits, p.batch, p.k, rng);
      const auto cases = Kernels(p.dtype);
      const auto expected = std::ranges::find(cases, name, &Case::name);
      ASSERT_NE(expected, cases.end());
      EXPECT_EQ(x.format, expected->format);
      const auto y = Run([&](const MatMulArgs& args) { MatMul(table(), dtype, args); }, p, weights,
                         x, 0, p.n, p.n);
      EXPECT_EQ(y, Run(expected->kernel, p, weights, x, 0, p.n, p.n));
    }
  }
}

// Normally distributed activations with one scale per 32 elements. With 8 bits the error of the
// whole product stays well below that of one scale per 256 elements (1.4e-2) for any weight type;
// 16 bits have 257 times as many steps.
TEST_P(MatMulTest, ActivationRoundingIsSmall) {
  Rng rng(7);
  for (const auto& [dtype, bits] : TypesAndBits()) {
    const Problem p{dtype, 64, 1536, 1, bits};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    const Activations x =
        MakeActivations(table(), p.dtype, ActivationFormat::kInt8Blocks, p.bits, p.batch, p.k, rng);
    const auto y = Run(FindWeight(table(), dtype)->gemv, p, weights, x, 0, p.n, p.n);
    double error = 0, norm = 0;
    for (size_t n = 0; n < p.n; ++n) {
      const auto row =
          ReferenceRow(p.dtype, &weights[static_cast<size_t>(n * RowBytes(p.dtype, p.k))], p.k);
      double sum = 0;
      for (size_t k = 0; k < p.k; ++k) sum += row[k] * x.values[k];
      error += (y[n] - sum) * (y[n] - sum);
      norm += sum * sum;
    }
    EXPECT_LT(std::sqrt(error / norm), bits == ActivationBits::k8 ? 1e-2 : 1e-2 / 200)
        << Describe(GetParam(), p);
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
        // Three roundings: the product of two scales, its product with the quant, the minimum
        // added.
        ASSERT_NEAR(out[i], expected[i], 3 * 0x1p-24 * 2 * largest) << NameOf(dtype) << " " << i;
      }
      EXPECT_EQ(out[k], 7.0f);
    }
  }
}

TEST_P(MatMulTest, Mxfp4ScalesReachTheSubnormals) {
  // 32 quants of 2 (value 1.0 at exponent 127), then the two exponents below the normal range.
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
  const float *scale, *scaled_sum32;
  const int32_t *quant_sum32, *quant_sum16;
};
View Look(const std::vector<float>& storage, size_t k, ActivationBits bits) {
  const auto* quants = reinterpret_cast<const int8_t*>(storage.data());
  const float* scale = storage.data() + PaddedLength(k) / 4 * PartCount(bits);
  const auto* sums = reinterpret_cast<const int32_t*>(scale + PaddedLength(k) / 16);
  return {quants, quants + PaddedLength(k),   scale, scale + PaddedLength(k) / 32,
          sums,   sums + PaddedLength(k) / 32};
}

void CheckQuantizedRow(const KernelTable& table, size_t k, ActivationBits bits, Rng& rng) {
  auto x = testing::RandomFloats(k, 3.0f, rng);
  for (size_t i = 0; i < 32; ++i) x[i] = 0.0f;  // a block of zeros
  std::vector<float> storage(
      ActivationRowBytes(ActivationFormat::kInt8Blocks, k, bits) / sizeof(float), 7.0f);
  table.quantize_row(x.data(), k, bits, storage.data());
  const View view = Look(storage, k, bits);
  std::vector<int> quants;
  for (size_t i = 0; i < PaddedLength(k); ++i) {
    quants.push_back(bits == ActivationBits::k8 ? view.high[i] : 256 * view.high[i] + view.low[i]);
    // Half a step, and one more where a low byte of 128 was stored as 127.
    const double steps = bits == ActivationBits::k16 && std::abs(view.low[i]) == 127 ? 1.5 : 0.5;
    const double value = i < k ? x[i] : 0.0;
    ASSERT_GE(view.high[i], -127);
    ASSERT_TRUE(bits == ActivationBits::k8 || view.low[i] >= -127);
    // Rounding of the scale and of its reciprocal adds 2^-22 of the largest quant, in steps.
    ASSERT_NEAR(static_cast<double>(view.scale[i / 32]) * quants[i], value,
                (steps + 32639 * 0x1p-22) * view.scale[i / 32])
        << i;
  }
  for (size_t g = 0; g < PaddedLength(k) / 16; ++g) {
    const int sum = std::accumulate(&quants[16 * g], &quants[16 * g] + 16, 0);
    ASSERT_EQ(view.quant_sum16[g], sum);
  }
  for (size_t g = 0; g < PaddedLength(k) / 32; ++g) {
    const int sum = std::accumulate(&quants[32 * g], &quants[32 * g] + 32, 0);
    ASSERT_EQ(view.quant_sum32[g], sum);
    ASSERT_EQ(view.scaled_sum32[g], view.scale[g] * static_cast<float>(sum));
  }
}

TEST_P(MatMulTest, QuantizesActivations) {
  Rng rng(9);
  for (size_t k : {32u, 64u, 256u, 704u, 1536u}) {
    for (const ActivationBits bits : kAllBits) CheckQuantizedRow(table(), k, bits, rng);
  }
}

TEST_P(MatMulTest, QuantizedRowsAreTheSameOnEveryLevel) {
  Rng rng(10);
  const auto x = testing::RandomFloats(704, 3.0f, rng);
  for (const ActivationBits bits : kAllBits) {
    std::vector<uint8_t> portable(ActivationRowBytes(ActivationFormat::kInt8Blocks, 704, bits));
    std::vector<uint8_t> here(portable.size());
    KernelsFor(Isa::kPortable).quantize_row(x.data(), 704, bits, portable.data());
    table().quantize_row(x.data(), 704, bits, here.data());
    EXPECT_EQ(portable, here);
  }
}

TEST_P(MatMulTest, SplitsActivations) {
  if (table().split_row == nullptr) {
    EXPECT_EQ(FormatFor(table(), DType::kQ4_K, SIZE_MAX), ActivationFormat::kInt8Blocks);
    return;
  }
  Rng rng(13);
  for (size_t k : {32u, 704u}) {
    const auto x = testing::RandomFloats(k, 3.0f, rng);
    for (const ActivationBits bits :
         {ActivationBits::k8, ActivationBits::k16, ActivationBits::k24}) {
      std::vector<uint8_t> row(ActivationRowBytes(ActivationFormat::kSplitBf16, k, bits), 7);
      table().split_row(x.data(), k, bits, row.data());
      for (size_t i = 0; i < PaddedLength(k); ++i) {
        const double value = i < k ? x[i] : 0.0;
        // Each bf16 number holds eight bits, rounded to nearest; three hold all 24 of a float.
        const double error = bits == ActivationBits::k8    ? 0x1p-8
                             : bits == ActivationBits::k16 ? 0x1p-16
                                                           : 0.0;
        ASSERT_NEAR(testing::ActivationValue(row.data(), ActivationFormat::kSplitBf16, k, bits, i),
                    value, error * std::fabs(value))
            << i;
      }
    }
  }
}

TEST_P(MatMulTest, NonFiniteActivationsGiveNan) {
  Rng rng(11);
  for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const Problem p{DType::kQ6_K, 2, 512, 1};
    const auto weights = RandomWeights(p.dtype, p.n, p.k, rng);
    for (const Case& c : Kernels(p.dtype)) {
      Activations x = MakeActivations(table(), p.dtype, c.format, p.bits, 1, p.k, rng);
      x.values[300] = bad;
      MakeActivationRow(table(), c.format, x.values.data(), p.k, p.bits, x.bytes.data());
      const auto y = Run(c.kernel, p, weights, x, 0, p.n, p.n);
      EXPECT_TRUE(std::isnan(y[0])) << c.name << " " << bad;
      EXPECT_TRUE(std::isnan(y[1])) << c.name << " " << bad;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MatMulTest, ::testing::ValuesIn(AvailableIsas()),
                         testing::IsaTestName);

TEST(KernelTableTest, RefusesTypesWithoutKernels) {
  for (Isa isa : AvailableIsas()) {
    EXPECT_EQ(KernelsFor(isa).isa, isa);
    EXPECT_EQ(FindWeight(KernelsFor(isa), DType::kI32), nullptr);
    EXPECT_EQ(FindWeight(KernelsFor(isa), DType::kQ8_K), nullptr);
    EXPECT_NE(FindWeight(KernelsFor(isa), DType::kQ4_K), nullptr);
  }
  EXPECT_TRUE(IsaAvailable(BestIsa()));
}

}  // namespace
}  // namespace rullama::cpu

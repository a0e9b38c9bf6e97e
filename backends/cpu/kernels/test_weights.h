// Test support: random rows of every weight type, and their plain float64 values computed from the
// published block layouts (docs/numerics.md), independently of the kernels. Those of decoded types
// and of code books are from the SDK, whose decoders are compared with vectors of an independent
// implementation.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/kernels/kernel_table.h"
#include "gtest/gtest.h"

namespace rullama::cpu::testing {

inline constexpr DType kBlockTypes[] = {
    DType::kQ4_0,  DType::kQ4_1,    DType::kQ5_0,   DType::kQ5_1,  DType::kQ8_0,    DType::kQ2_K,
    DType::kQ3_K,  DType::kQ4_K,    DType::kQ5_K,   DType::kQ6_K,  DType::kIQ4_NL,  DType::kIQ4_XS,
    DType::kMXFP4, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S};
inline constexpr DType kDecodedTypes[] = {DType::kIQ1_S, DType::kIQ1_M, DType::kTQ1_0,
                                          DType::kTQ2_0, DType::kNVFP4};
inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// The levels this machine can run.
std::vector<Isa> AvailableIsas();
// The name of a level in those of tests.
std::string IsaTestName(const ::testing::TestParamInfo<Isa>& test);

using Rng = std::mt19937;

// `rows` rows of k weights with random quants and scales such that values are of order one.
std::vector<uint8_t> RandomWeights(DType dtype, size_t rows, size_t k, Rng& rng);
// The exact values of one row.
std::vector<double> ReferenceRow(DType dtype, const uint8_t* row, size_t k);

std::vector<float> RandomFloats(size_t n, float deviation, Rng& rng);

// Random activations and their converted form.
struct Activations {
  ActivationFormat format = ActivationFormat::kInt8Blocks;
  ActivationBits bits = ActivationBits::k8;
  std::vector<float> values;   // [batch][k]
  std::vector<uint8_t> bytes;  // the converted rows, MatMulArgs::x
  size_t stride = 0;           // bytes between converted rows
  std::vector<double> seen;    // [batch][k]: the exact values of the converted rows
};
Activations MakeActivations(const KernelTable& table, DType dtype, ActivationFormat format,
                            ActivationBits bits, size_t batch, size_t k, Rng& rng);
// The exact value of element i of a converted row.
double ActivationValue(const uint8_t* row, ActivationFormat format, size_t k, ActivationBits bits,
                       size_t i);

}  // namespace rullama::cpu::testing

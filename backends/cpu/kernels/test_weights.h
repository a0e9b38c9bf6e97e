// Test support: random rows of every weight type, and their plain float64 values computed from the
// published block layouts (docs/numerics.md), independently of the kernels.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "backends/cpu/kernels/kernels.h"

namespace rullama::cpu::testing {

inline constexpr DType kBlockTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                                        DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                                        DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                        DType::kMXFP4};
inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// The levels this machine can run.
std::vector<Isa> AvailableIsas();

using Rng = std::mt19937;

// `rows` rows of k random weights: random codes, sensible scales (values of order one).
std::vector<uint8_t> RandomWeights(DType dtype, size_t rows, size_t k, Rng& rng);
// The values of one row.
std::vector<double> ReferenceRow(DType dtype, const uint8_t* row, size_t k);

std::vector<float> RandomFloats(size_t n, float deviation, Rng& rng);

// Columns of activations as the product wants them: quantised or float.
struct Columns {
  ActivationForm form = ActivationForm::kCodes;
  int planes = 1;
  std::vector<float> x;        // [columns][k]
  std::vector<uint8_t> bytes;  // what to pass
  size_t stride = 0;           // bytes
  std::vector<double> seen;    // [columns][k]: the values the product is to use
};
Columns MakeColumns(const KernelTable& table, DType dtype, ActivationForm form, int planes,
                    size_t columns, size_t k, Rng& rng);
// The value of element i of a row of activations.
double ActivationValue(const uint8_t* row, ActivationForm form, size_t k, int planes, size_t i);

}  // namespace rullama::cpu::testing

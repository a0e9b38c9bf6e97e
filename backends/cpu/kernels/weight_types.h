// The types of weights, for filling a WeightTable. Internal linkage, see simd_portable.h.
#pragma once

#include <rullama/sdk/dtype.h>

#include "backends/cpu/kernels/matmul.h"

namespace rullama::cpu {
namespace {

// Calls f<T>(kernels of T) for each of kTypes.
template <DType... kTypes, typename F>
void ForEachType(WeightTable& table, F f) {
  (f.template operator()<kTypes>(table[static_cast<size_t>(kTypes)]), ...);
}

// The same for each block type.
template <typename F>
void ForEachBlockType(WeightTable& table, F f) {
  ForEachType<DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
              DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
              DType::kIQ4_XS, DType::kMXFP4, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
              DType::kIQ3_XXS, DType::kIQ3_S>(table, f);
}

}  // namespace
}  // namespace rullama::cpu

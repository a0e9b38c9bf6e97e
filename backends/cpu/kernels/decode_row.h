// Rows of weights, keys and values to float32 by the decoders of the SDK, without vector code.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>

namespace rullama::cpu {

// Whether a block type has no kernels of its own: its products take float32 activations and rows of
// DecodeRow.
constexpr bool IsDecodedType(DType type) {
  switch (type) {
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kNVFP4:
      return true;
    default:
      return false;
  }
}

// The k values of a row of any type, whole blocks. A function of its own: the decoders of the
// SDK have external linkage, so no instruction-set level may compile them.
void DecodeRow(DType type, const void* row, size_t k, float* out);

}  // namespace rullama::cpu

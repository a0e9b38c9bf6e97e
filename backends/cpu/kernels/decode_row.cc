#include "backends/cpu/kernels/decode_row.h"

#include <rullama/sdk/dequantize.h>

namespace rullama::cpu {

void DecodeRow(DType type, const void* row, size_t k, float* out) {
  sdk::FindDequantizer(type)(static_cast<const std::byte*>(row), k / InfoOf(type).block_elements,
                             out);
}

}  // namespace rullama::cpu

#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/packed_gemv.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
void AddPackedGemv<kIsa>(WeightTable& weights) {
  ForEachBlockType(weights, []<DType kType>(WeightKernels& kernels) {
    if constexpr (kCanBePacked<kType>) {
      kernels.packed_gemv = &PackedGemv<kType>;
      kernels.pack = &PackRows<kType>;
      kernels.dequantize_packed = &DequantizePackedRow<kType>;
    }
  });
}

}  // namespace rullama::cpu

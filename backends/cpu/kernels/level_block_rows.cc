#include "backends/cpu/kernels/dequantize_rows.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/pack_rows.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
void AddBlockRows<kIsa>(WeightTable& weights) {
  ForEachBlockType(weights, []<DType kType>(WeightKernels& kernels) {
    kernels.dequantize = &DequantizeBlockRow<kType>;
    if constexpr (kCanBePacked<kType>) {
      kernels.pack = &PackRows<kType>;
      kernels.dequantize_packed = &DequantizePackedRow<kType>;
    }
  });
}

}  // namespace rullama::cpu

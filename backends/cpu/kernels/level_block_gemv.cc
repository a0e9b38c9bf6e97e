#include "backends/cpu/kernels/block_gemv.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
void AddBlockGemv<kIsa>(WeightTable& weights) {
  ForEachBlockType(weights,
                   []<DType kType>(WeightKernels& kernels) { kernels.gemv = &BlockGemv<kType>; });
}

}  // namespace rullama::cpu

#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/vector_tile.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
size_t AddBlockGemm<kIsa>(WeightTable& weights) {
  ForEachBlockType(weights,
                   []<DType kType>(WeightKernels& kernels) { kernels.gemm = &BlockGemm<kType>; });
  return sizeof(GemmScratch<VectorTile<DType::kQ8_0, 1>>);
}

}  // namespace rullama::cpu

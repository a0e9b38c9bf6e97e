#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/vector_tile.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
void AddBlockGemm<kIsa>(KernelTable& table) {
  ForEachBlockType(table,
                   []<DType kType>(WeightKernels& kernels) { kernels.gemm = &BlockGemm<kType>; });
  // The size is the same for every weight type.
  table.gemm_scratch_bytes = sizeof(GemmScratch<VectorTile<DType::kQ8_0, 1>>);
}

}  // namespace rullama::cpu

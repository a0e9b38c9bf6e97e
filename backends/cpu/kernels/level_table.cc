#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {

template <>
const KernelTable& TableOf<kIsa>() {
  static const KernelTable kTable = [] {
    KernelTable table;
    table.isa = kIsa;
    AddFloatKernels<LevelOfFloatKernels(kIsa)>(table);
    AddBlockRows<LevelOfFloatKernels(kIsa)>(table.weights);
    AddBlockGemv<kIsa>(table.weights);
    table.gemm_scratch_bytes = AddBlockGemm<kIsa>(table.weights);
    AddStoredProducts<kIsa>(table);
    AddPackedGemv<kIsa>(table.weights);
    return table;
  }();
  return kTable;
}

}  // namespace rullama::cpu

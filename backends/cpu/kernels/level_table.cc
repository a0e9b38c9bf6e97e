#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/simd.h"

namespace rullama::cpu {

template <>
const KernelTable& TableOf<kIsa>() {
  static const KernelTable kTable = [] {
    KernelTable table;
    table.isa = kIsa;
    AddFloatKernels<kIsa>(table);
    AddBlockGemv<kIsa>(table);
    AddBlockGemm<kIsa>(table);
    AddPackedGemv<kIsa>(table);
    return table;
  }();
  return kTable;
}

}  // namespace rullama::cpu

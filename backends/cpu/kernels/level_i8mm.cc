// The I8MM level: the level with dot products plus gemm by products of pairs of rows.
#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/pair_dots.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
const KernelTable& TableOf<Isa::kNeonI8mm>() {
  static const KernelTable kTable = [] {
    KernelTable table = TableOf<Isa::kNeonDotProd>();
    table.isa = Isa::kNeonI8mm;
    ForEachBlockType(table.weights, []<DType kType>(WeightKernels& kernels) {
      kernels.gemm = &BlockGemm<kType, PairDots>;
    });
    return table;
  }();
  return kTable;
}

}  // namespace rullama::cpu

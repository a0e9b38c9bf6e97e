#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/packed_gemv.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {
namespace {

// WeightKernels::packed_gemm_min_batch, measured by the benchmarks PackedGemv and PackedGemm
// (bench/cpu_kernels_bench.cc).
constexpr size_t PackedGemmMinBatch(DType type, size_t block_elements) {
  if (kIsa == Isa::kAvx512Vnni) return type == DType::kQ6_K ? 32 : SIZE_MAX;
  if (kIsa == Isa::kAvxVnni && block_elements == 32) return SIZE_MAX;
  return 16;
}

}  // namespace

template <>
void AddPackedGemv<kIsa>(WeightTable& weights) {
  ForEachBlockType(weights, []<DType kType>(WeightKernels& kernels) {
    if constexpr (kCanBePacked<kType>) {
      kernels.packed_gemv = &PackedGemv<kType>;
      kernels.packed_gemm_min_batch = PackedGemmMinBatch(kType, kBlockElements<kType>);
    }
  });
}

}  // namespace rullama::cpu

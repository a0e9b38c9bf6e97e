#define RULLAMA_SIMD_AVX2 1
#include "backends/cpu/kernels/build_table.h"
#include "backends/cpu/kernels/level_tables.h"

namespace rullama::cpu {

const KernelTable& Avx2Table() { return kTable; }

}  // namespace rullama::cpu

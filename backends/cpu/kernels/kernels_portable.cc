#define RULLAMA_SIMD_PORTABLE 1
#include "backends/cpu/kernels/build_table.h"
#include "backends/cpu/kernels/level_tables.h"

namespace rullama::cpu {

const KernelTable& PortableTable() { return kTable; }

}  // namespace rullama::cpu

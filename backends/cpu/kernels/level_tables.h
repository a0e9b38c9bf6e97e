// The tables of the instruction-set levels in this build. Callers outside dispatch.cc use
// KernelsFor() of kernel_table.h, which checks that the processor can run the level.
#pragma once

#include "backends/cpu/kernels/kernel_table.h"

namespace rullama::cpu {

extern const KernelTable& PortableTable();
extern const KernelTable& Avx2Table();
extern const KernelTable& AvxVnniTable();
extern const KernelTable& Avx512Table();
extern const KernelTable& Avx512VnniTable();
extern const KernelTable& AmxTable();

}  // namespace rullama::cpu

// The tables of the levels this build contains; use KernelsFor() of kernels.h.
#pragma once

#include "backends/cpu/kernels/kernels.h"

namespace rullama::cpu {

extern const KernelTable& PortableTable();
extern const KernelTable& Avx2Table();
extern const KernelTable& AvxVnniTable();
extern const KernelTable& Avx512Table();
extern const KernelTable& Avx512VnniTable();
extern const KernelTable& AmxTable();

}  // namespace rullama::cpu

// The table of each instruction-set level and the functions that fill it. The files level_*.cc are
// compiled once for every level (see CMakeLists.txt); each adds one family of kernels, so that a
// changed kernel header costs the compilation of its family only.
//
// Callers outside dispatch.cc use KernelsFor() of kernel_table.h, which checks that the processor
// can run the level.
#pragma once

#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"

namespace rullama::cpu {

struct KernelTable;

// The level whose kernels without products of bytes `level` has: VNNI changes only the products of
// bytes and of 16-bit words, so the other families of its level are those of the level before it.
constexpr Isa LevelOfFloatKernels(Isa level) {
  if (level == Isa::kAvxVnni) return Isa::kAvx2;
#if defined(RULLAMA_CPU_AVX512_KERNELS)
  if (level == Isa::kAvx512Vnni) return Isa::kAvx512;
#endif
  return level;
}

// Row kernels, attention, the conversion of activations, and products of F32, F16 and BF16 weights.
template <Isa kLevel>
void AddFloatKernels(KernelTable& table);
// Products of block types in GGUF layout.
template <Isa kLevel>
void AddBlockGemv(WeightTable& weights);
// Dequantisation and packing of rows of block types.
template <Isa kLevel>
void AddBlockRows(WeightTable& weights);
// Products of block types, packed or not, with many batch rows. Returns their scratch size, which
// is the same for every type.
template <Isa kLevel>
size_t AddBlockGemm(WeightTable& weights);
// Products with weights as they are stored, on levels that have a kernel for them.
template <Isa kLevel>
void AddStoredProducts(KernelTable& table);
// Products of packed rows.
template <Isa kLevel>
void AddPackedGemv(WeightTable& weights);

template <Isa kLevel>
const KernelTable& TableOf();

}  // namespace rullama::cpu

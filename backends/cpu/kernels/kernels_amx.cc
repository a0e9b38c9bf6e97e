// The AMX level: the AVX-512 VNNI level plus split_gemm on the matrix unit.
#define RULLAMA_SIMD_AVX512 1
#include "backends/cpu/kernels/amx_tile.h"
#include "backends/cpu/kernels/level_tables.h"

namespace rullama::cpu {
namespace {

template <DType... kTypes>
void AddBlockTypes(KernelTable& table) {
  ((table.weights[static_cast<size_t>(kTypes)].split_gemm = &SplitBlockGemm<kTypes>), ...);
}

KernelTable MakeAmxTable() {
  KernelTable table = Avx512VnniTable();
  table.isa = Isa::kAmx;
  table.split_min_batch = 128;
  // The size is the same for every weight type.
  table.split_scratch_bytes = sizeof(GemmScratch<AmxTile<DType::kQ8_0, 1>>);
  table.split_row = &SplitRow;
  AddBlockTypes<DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
                DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                DType::kIQ4_XS, DType::kMXFP4>(table);
  table.weights[static_cast<size_t>(DType::kF16)].split_gemm = &SplitFloatGemm<DType::kF16>;
  table.weights[static_cast<size_t>(DType::kBF16)].split_gemm = &SplitFloatGemm<DType::kBF16>;
  return table;
}

}  // namespace

const KernelTable& AmxTable() {
  static const KernelTable kTable = MakeAmxTable();
  return kTable;
}

}  // namespace rullama::cpu

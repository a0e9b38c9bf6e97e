// The AMX level: the AVX-512 VNNI level plus the products on the matrix unit.
#include "backends/cpu/kernels/amx_attention.h"
#include "backends/cpu/kernels/amx_byte_tile.h"
#include "backends/cpu/kernels/amx_stored.h"
#include "backends/cpu/kernels/amx_tile.h"
#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/weight_types.h"

namespace rullama::cpu {

template <>
const KernelTable& TableOf<Isa::kAmx>() {
  static const KernelTable kTable = [] {
    KernelTable table = TableOf<Isa::kAvx512Vnni>();
    table.isa = Isa::kAmx;
    table.split_min_batch = 128;
    // The size is the same for every weight type.
    table.split_scratch_bytes = sizeof(GemmScratch<AmxTile<DType::kQ8_0, 1>>);
    table.split_row = &SplitRow;
    table.split_attention = &SplitAttention;
    table.add_stored_product = &AddStoredProduct;
    table.stored_product_rounds = false;
    table.stored_scratch_bytes = sizeof(StoredScratch) + kScratchAlignment;
    ForEachBlockType(table.weights, []<DType kType>(WeightKernels& kernels) {
      kernels.gemm = &ByteBlockGemm<kType>;
      if (kernels.packed_gemv != nullptr) kernels.packed_gemm_min_batch = kByteTileMinBatch;
      kernels.split_gemm = &SplitBlockGemm<kType>;
    });
    table.weights[static_cast<size_t>(DType::kF16)].split_gemm = &Gemm<AmxTile<DType::kF16, 2>>;
    table.weights[static_cast<size_t>(DType::kBF16)].split_gemm = &Gemm<AmxTile<DType::kBF16, 3>>;
    return table;
  }();
  return kTable;
}

}  // namespace rullama::cpu

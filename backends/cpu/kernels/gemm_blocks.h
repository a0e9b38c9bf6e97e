// Block sizes of GEMM. They change speed, not results.
#pragma once

#include <cstddef>

namespace rullama::cpu {

// Weight rows that GEMM unpacks at a time. Their panels, some 100 KiB, stay in L2.
inline constexpr size_t kBlockRows = 128;
// Weight rows that GEMM with bf16 numbers on the matrix unit unpacks at a time. It reads the batch
// rows from L3 once for each block, so a larger block reads them less often. Panels take 256 KiB
// and sums 512 KiB of an L2 of 2 MiB.
inline constexpr size_t kSplitBlockRows = 256;
// Batch rows whose sums GEMM keeps between two panel depths. With kBlockRows weight rows that is
// 256 KiB, a fraction of L2.
inline constexpr size_t kBatchBlock = 512;
// Rows of F16 or BF16 weights that are converted at a time: a fraction of L2.
inline constexpr size_t kFloatPanelRows = 16;

}  // namespace rullama::cpu

// Block sizes and thresholds of the CPU kernels. They change speed, not results, except that
// thresholds select between kernels that sum in different orders.
#pragma once

#include <cstddef>

namespace rullama::cpu {

// Scratch buffers are aligned to a cache line inside the kernel; their sizes include the slack.
inline constexpr size_t kScratchAlignment = 64;
// At this batch size packed weights switch from GEMV to GEMM. The break-even is 10 (Intel, Q6_K) to
// more than 64 (AMD, Q4_K) batch rows; around 16 the two differ by some 5 %.
inline constexpr size_t kPackedGemmMinBatch = 16;
// Weight rows that GEMM unpacks at a time. Their panels, some 100 KiB, stay in L2.
inline constexpr size_t kBlockRows = 128;
// Elements of k per panel of quants. A tile of batch rows of that depth stays in L1.
inline constexpr size_t kPanelDepth = 512;
// Rows of F16 or BF16 weights that are converted at a time: a fraction of L2.
inline constexpr size_t kFloatPanelRows = 16;
// Batch rows whose sums GEMM keeps between two panel depths. With kBlockRows weight rows that is
// 256 KiB, a fraction of L2.
inline constexpr size_t kBatchBlock = 512;
// Prefetch distance of weight bytes: about 100 ns of one thread's share of memory bandwidth.
inline constexpr size_t kPrefetchBytes = 2048;

}  // namespace rullama::cpu

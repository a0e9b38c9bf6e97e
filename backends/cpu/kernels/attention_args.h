// Interface of the attention kernel: queries over the keys and values of one key/value head.
#pragma once

#include <rullama/sdk/dtype.h>

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/scratch.h"

namespace rullama::cpu {

// Consecutive rows of keys and values of one head, cached or fresh; row i has position
// first_position + i. A ring buffer that wraps is passed as two segments, and so are cached and
// fresh rows.
struct KvSegment {
  const void* keys = nullptr;               // row 0: head_dim elements of `key_type`
  const void* values = nullptr;             // row 0
  size_t key_stride = 0, value_stride = 0;  // bytes between rows
  size_t count = 0;
  int64_t first_position = 0;
  // Types of caches (<rullama/sdk/cache_rows.h>).
  DType key_type = DType::kF16, value_type = DType::kF16;
  // Whether a tile may begin in the segment before and continue in this one.
  bool joins = false;
};

// One query row. It sees the keys with first_visible <= position <= last_visible.
struct AttentionQuery {
  const float* q = nullptr;  // head_dim values
  float* out = nullptr;      // head_dim values, must not overlap any input
  int64_t first_visible = 0;
  int64_t last_visible = 0;
};

// out = sum over t of softmax_t(scale * q . k_t) * v_t over the visible keys; zero if none is
// visible.
//
// Keys and values are read from memory once per call and converted once for several queries, so a
// call should get all query heads that share the key/value head and, in prefill, several positions.
// Arithmetic is float32 with an online softmax over tiles of kAttentionTile keys. A result does not
// depend on the other queries of the call; its last bits depend on how the segments cut the keys
// into tiles.
struct AttentionArgs {
  const KvSegment* segments = nullptr;
  size_t segment_count = 0;
  const AttentionQuery* queries = nullptr;
  size_t query_count = 0;
  size_t head_dim = 0;  // a multiple of 8
  float scale = 1.0f;
  // If set, `out` is left unnormalised and these receive the running maximum and the sum of
  // exponentials of each query, so that AttentionMerge() can combine parts of the keys that
  // different threads computed.
  float* partial_max = nullptr;
  float* partial_sum = nullptr;
  // AttentionScratchBytes(head_dim, query_count), or those of the kernel; private to this call.
  void* scratch = nullptr;
};
inline constexpr size_t kAttentionTile = 32;

// Scratch holds in float32: one tile of keys or values, the queries and their accumulators (rows
// padded to 16), the scores of a tile, and four numbers per query (see AttentionState).
static inline constexpr size_t AttentionScratchBytes(size_t head_dim, size_t query_count) {
  const size_t padded = (head_dim + 15) / 16 * 16;
  return (kAttentionTile * padded + query_count * (2 * padded + kAttentionTile + 4)) *
             sizeof(float) +
         kScratchAlignment;
}

// The number of keys in a tile of the matrix unit's kernel.
inline constexpr size_t kSplitAttentionTile = 128;
// Its queries and head dimensions are padded to a multiple of this.
inline constexpr size_t kSplitAttentionBlock = 32;
static inline constexpr size_t SplitAttentionPadding(size_t count) {
  return (count + kSplitAttentionBlock - 1) / kSplitAttentionBlock * kSplitAttentionBlock;
}

// The bf16 numbers whose sum a query or a key is there.
inline constexpr size_t kSplitScoreParts = 3;
// Scratch of that kernel in float32: accumulators and scores, two numbers per query, a tile of keys
// or values; in bf16 numbers: the parts of queries and of the tile.
static inline constexpr size_t SplitAttentionScratchBytes(size_t head_dim, size_t query_count) {
  const size_t padded = SplitAttentionPadding(head_dim);
  const size_t queries = SplitAttentionPadding(query_count);
  const size_t parts = kSplitScoreParts * padded * (queries + kSplitAttentionTile);
  return (queries * (padded + kSplitAttentionTile + 2) + kSplitAttentionTile * padded) *
             sizeof(float) +
         parts * sizeof(uint16_t) + kScratchAlignment;
}

// Combines `parts` partial attention results of one query:
// out = sum over p of exp(max_p - max) * acc_p / total.
// acc: one row of head_dim floats per part, `acc_stride` floats apart; max, sum: one per part. out
// may be acc.
void AttentionMerge(const float* acc, size_t acc_stride, const float* max, const float* sum,
                    size_t parts, size_t head_dim, float* out);

}  // namespace rullama::cpu

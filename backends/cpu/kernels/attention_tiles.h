// Parts shared by the attention kernels of all levels: the walk over tiles of keys, their
// conversion, the mask, and the state of an online softmax (Milakov and Gimelshein,
// arXiv:1805.02867). Included after one of the simd_*.h headers; internal linkage, see there.
#pragma once

#include "backends/cpu/kernels/attention_args.h"
#include "backends/cpu/kernels/cache_blocks.h"
#include "backends/cpu/kernels/float_matmul.h"
#include "backends/cpu/kernels/vector_math.h"

namespace rullama::cpu {
namespace {

// A segment and those that join it, as one.
struct KvRun {
  const KvSegment* segments;
  size_t rows;
};

// Calls f(run, row, keys) for each tile, rows [row, row + keys) of a run; keys is kTile but for the
// last tile of a run.
template <size_t kTile, typename F>
RL_INLINE void ForEachTile(const AttentionArgs& args, F f) {
  for (size_t i = 0; i < args.segment_count;) {
    KvRun run{args.segments + i, args.segments[i].count};
    for (++i; i < args.segment_count && args.segments[i].joins; ++i) {
      run.rows += args.segments[i].count;
    }
    for (size_t row = 0; row < run.rows; row += kTile) {
      const size_t left = run.rows - row;
      f(run, row, left < kTile ? left : kTile);
    }
  }
}

// The results of queries over the keys so far.
struct RunningSoftmax {
  size_t dim;     // head_dim
  size_t padded;  // floats between the rows of acc
  float* acc;     // [queries][padded], unnormalised
  float* max;     // [queries]
  float* sum;     // [queries]: of exponentials
};

RL_INLINE void StartSoftmax(size_t queries, const RunningSoftmax& s) {
  for (size_t i = 0; i < queries * s.padded; i += 16) Store(s.acc + i, Zero());
  for (size_t i = 0; i < queries; ++i) {
    s.max[i] = -kInfinity;
    s.sum[i] = 0.0f;
  }
}

RL_INLINE void FinishQueries(const AttentionArgs& args, const RunningSoftmax& s) {
  for (size_t i = 0; i < args.query_count; ++i) {
    float factor = 1.0f;
    if (args.partial_max != nullptr) {
      args.partial_max[i] = s.max[i];
      args.partial_sum[i] = s.sum[i];
    } else {
      factor = s.sum[i] == 0.0f ? 0.0f : 1.0f / s.sum[i];
    }
    const F32x16 factors = Set1(factor);
    MapRow(s.acc + i * s.padded, s.dim, args.queries[i].out,
           [&](const F32x16& v) { return Mul(v, factors); });
  }
}

// Calls f(t, segment, row) for rows [first, first + count) of a run: the t-th of them is row `row`
// of its segment.
template <typename F>
RL_INLINE void ForEachRow(const KvRun& run, size_t first, size_t count, F f) {
  const KvSegment* segment = run.segments;
  for (size_t t = 0; t < count; ++t, ++first) {
    for (; first >= segment->count; ++segment) first -= segment->count;
    f(t, *segment, first);
  }
}

RL_INLINE const uint8_t* KeyRow(const KvSegment& segment, size_t row) {
  return static_cast<const uint8_t*>(segment.keys) + row * segment.key_stride;
}
RL_INLINE const uint8_t* ValueRow(const KvSegment& segment, size_t row) {
  return static_cast<const uint8_t*>(segment.values) + row * segment.value_stride;
}

enum class RowsOf : uint8_t { kKeys, kValues };

// Converts rows [first, first + count) of a run to float32, s.padded floats apart in `tile`, and
// pads them with zeros.
template <RowsOf kOf>
RL_INLINE void LoadTile(const KvRun& run, size_t first, size_t count, const RunningSoftmax& s,
                        float* tile) {
  ForEachRow(run, first, count, [&](size_t t, const KvSegment& segment, size_t at) {
    const uint8_t* row = kOf == RowsOf::kKeys ? KeyRow(segment, at) : ValueRow(segment, at);
    float* out = tile + t * s.padded;
    LoadCacheRow(kOf == RowsOf::kKeys ? segment.key_type : segment.value_type, row, s.dim, out);
    for (size_t i = s.dim; i < s.padded; ++i) out[i] = 0.0f;
  });
}

// Whether a query sees a key of positions [first, last].
RL_INLINE bool SeesAny(const AttentionQuery& query, int64_t first, int64_t last) {
  return query.first_visible <= last && query.last_visible >= first;
}

// Sets the scores of invisible keys to -inf. The tile holds `keys` keys from position `first` on.
template <size_t kTile>
RL_INLINE void MaskScores(const AttentionQuery& query, int64_t first, size_t keys, float* scores) {
  const bool sees_all = keys == kTile && query.first_visible <= first &&
                        query.last_visible - first >= static_cast<int64_t>(keys) - 1;
  for (size_t t = 0; t < kTile && !sees_all; ++t) {
    const int64_t position = first + static_cast<int64_t>(t);
    if (t >= keys || position < query.first_visible || position > query.last_visible) {
      scores[t] = -kInfinity;
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

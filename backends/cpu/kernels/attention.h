// Attention of many queries over the keys and values of one head, tile by tile with an online
// softmax. A tile of keys, then of values, is converted to float32 once and used by every query
// that sees part of it. Products and sums are float32. The result of a query does not depend on the
// other queries of the call. Included after one of the simd_*.h headers; internal linkage, see
// there.
#pragma once

#include "backends/cpu/kernels/attention_args.h"
#include "backends/cpu/kernels/attention_tiles.h"
#include "backends/cpu/kernels/row_ops.h"
#include "backends/cpu/kernels/scratch.h"

namespace rullama::cpu {
namespace {

// The scratch memory of a call.
struct AttentionState : RunningSoftmax {  // padded: dim rounded up to 16
  float* tile;                            // [kAttentionTile][padded]
  float* q;                               // [queries][padded], scaled
  float* scores;     // [queries][kAttentionTile]; after the softmax step, weights
  float* decay;      // [queries]: factor that rescales acc before this tile is added
  uint32_t* active;  // indices of the queries that see part of this tile
  size_t active_count;
};

RL_INLINE AttentionState LayOut(const AttentionArgs& args) {
  AttentionState s{};
  s.dim = args.head_dim;
  s.padded = (args.head_dim + 15) / 16 * 16;
  s.tile = reinterpret_cast<float*>(AlignUp(args.scratch));
  s.q = s.tile + kAttentionTile * s.padded;
  s.acc = s.q + args.query_count * s.padded;
  s.scores = s.acc + args.query_count * s.padded;
  s.max = s.scores + args.query_count * kAttentionTile;
  s.sum = s.max + args.query_count;
  s.decay = s.sum + args.query_count;
  s.active = reinterpret_cast<uint32_t*>(s.decay + args.query_count);
  return s;
}

// scores[kQueries][kKeys] = the dot products of a block of queries and keys.
template <int kQueries, int kKeys>
RL_INLINE void ScoreBlock(const float* const q[kQueries], const float* keys, size_t padded,
                          float* const scores[kQueries]) {
  F32x16 acc[kQueries][kKeys];
  for (int a = 0; a < kQueries; ++a) {
    for (int t = 0; t < kKeys; ++t) acc[a][t] = Zero();
  }
  for (size_t i = 0; i < padded; i += 16) {
    F32x16 key[kKeys];
    for (int t = 0; t < kKeys; ++t) key[t] = Load(keys + t * padded + i);
    for (int a = 0; a < kQueries; ++a) {
      const F32x16 query = Load(q[a] + i);
      for (int t = 0; t < kKeys; ++t) acc[a][t] = Fma(query, key[t], acc[a][t]);
    }
  }
  for (int a = 0; a < kQueries; ++a) {
    for (int t = 0; t < kKeys; ++t) scores[a][t] = ReduceAdd(acc[a][t]);
  }
}

template <int kQueries>
void ScoreQueries(const AttentionState& s, const uint32_t* queries, size_t keys) {
  constexpr size_t kKeys = 4;
  const float* q[kQueries];
  float* scores[kQueries];
  for (int a = 0; a < kQueries; ++a) {
    q[a] = s.q + queries[a] * s.padded;
    scores[a] = s.scores + queries[a] * kAttentionTile;
  }
  size_t t = 0;
  for (; t + kKeys <= keys; t += kKeys) {
    ScoreBlock<kQueries, kKeys>(q, s.tile + t * s.padded, s.padded, scores);
    for (float*& score : scores) score += kKeys;
  }
  for (; t < keys; ++t) {
    ScoreBlock<kQueries, 1>(q, s.tile + t * s.padded, s.padded, scores);
    for (float*& score : scores) ++score;
  }
}

// acc = acc * decay + weights x values for a block of queries and 16 * kVectors dimensions.
template <int kQueries, int kVectors>
RL_INLINE void ValueBlock(const AttentionState& s, const uint32_t* queries, size_t keys, size_t i) {
  F32x16 acc[kQueries][kVectors];
  const float* weights[kQueries];
  for (int a = 0; a < kQueries; ++a) {
    const F32x16 decay = Set1(s.decay[queries[a]]);
    weights[a] = s.scores + queries[a] * kAttentionTile;
    for (int v = 0; v < kVectors; ++v) {
      acc[a][v] = Mul(Load(s.acc + queries[a] * s.padded + i + 16 * v), decay);
    }
  }
  for (size_t t = 0; t < keys; ++t) {
    F32x16 value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = Load(s.tile + t * s.padded + i + 16 * v);
    for (int a = 0; a < kQueries; ++a) {
      const F32x16 weight = Set1(weights[a][t]);
      for (int v = 0; v < kVectors; ++v) acc[a][v] = Fma(weight, value[v], acc[a][v]);
    }
  }
  for (int a = 0; a < kQueries; ++a) {
    for (int v = 0; v < kVectors; ++v) {
      Store(s.acc + queries[a] * s.padded + i + 16 * v, acc[a][v]);
    }
  }
}

template <int kQueries>
void AddValues(const AttentionState& s, const uint32_t* queries, size_t keys) {
  constexpr size_t kVectors = 4;
  size_t i = 0;
  for (; i + 16 * kVectors <= s.padded; i += 16 * kVectors) {
    ValueBlock<kQueries, kVectors>(s, queries, keys, i);
  }
  for (; i < s.padded; i += 16) ValueBlock<kQueries, 1>(s, queries, keys, i);
}

// Masks the scores of one query, turns them into weights and updates its running maximum and sum.
// The tile holds positions [first, first + keys).
void SoftmaxStep(const AttentionState& s, const AttentionQuery& query, size_t index, int64_t first,
                 size_t keys) {
  float* scores = s.scores + index * kAttentionTile;
  MaskScores<kAttentionTile>(query, first, keys, scores);
  F32x16 largest = Set1(s.max[index]);
  for (size_t t = 0; t < kAttentionTile; t += 16) largest = Max(Load(scores + t), largest);
  const float max = ReduceMax(largest);
  // While every score is -inf, any finite reference gives weights of zero.
  const float reference = max == -kInfinity ? 0.0f : max;
  F32x16 sum = Zero();
  for (size_t t = 0; t < kAttentionTile; t += 16) {
    const F32x16 weight = Exp(Sub(Load(scores + t), Set1(reference)));
    Store(scores + t, weight);
    sum = Add(sum, weight);
  }
  float decay[16];
  Store(decay, Exp(Set1(s.max[index] - reference)));
  s.decay[index] = decay[0];
  s.sum[index] = s.sum[index] * decay[0] + ReduceAdd(sum);
  s.max[index] = max;
}

// Adds one tile of a run, rows [row, row + keys), to every query that sees part of it.
void AttendTile(const AttentionArgs& args, const KvRun& run, size_t row, size_t keys,
                AttentionState& s) {
  const int64_t first = run.segments->first_position + static_cast<int64_t>(row);
  const int64_t last = first + static_cast<int64_t>(keys) - 1;
  s.active_count = 0;
  for (size_t i = 0; i < args.query_count; ++i) {
    if (SeesAny(args.queries[i], first, last)) {
      s.active[s.active_count++] = static_cast<uint32_t>(i);
    }
  }
  if (s.active_count == 0) return;
  LoadTile<RowsOf::kKeys>(run, row, keys, s, s.tile);
  size_t a = 0;
  for (; a + 4 <= s.active_count; a += 4) ScoreQueries<4>(s, s.active + a, keys);
  for (; a < s.active_count; ++a) ScoreQueries<1>(s, s.active + a, keys);
  for (a = 0; a < s.active_count; ++a) {
    SoftmaxStep(s, args.queries[s.active[a]], s.active[a], first, keys);
  }
  LoadTile<RowsOf::kValues>(run, row, keys, s, s.tile);
  for (a = 0; a + 4 <= s.active_count; a += 4) AddValues<4>(s, s.active + a, keys);
  for (; a < s.active_count; ++a) AddValues<1>(s, s.active + a, keys);
}

void StartQueries(const AttentionArgs& args, const AttentionState& s) {
  for (size_t i = 0; i < args.query_count; ++i) {
    float* q = s.q + i * s.padded;
    AffineRow(args.queries[i].q, s.dim, args.scale, 0.0f, q);
    for (size_t d = s.dim; d < s.padded; ++d) q[d] = 0.0f;
  }
  StartSoftmax(args.query_count, s);
}

void Attention(const AttentionArgs& args) {
  AttentionState s = LayOut(args);
  StartQueries(args, s);
  ForEachTile<kAttentionTile>(args, [&](const KvRun& run, size_t row, size_t keys) {
    AttendTile(args, run, row, keys, s);
  });
  FinishQueries(args, s);
}

}  // namespace
}  // namespace rullama::cpu

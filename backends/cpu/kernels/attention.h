// Attention of some queries over the keys and values of one head, tile by tile with an online
// softmax. Many queries share a tile that is converted to float32 first; for a few, as in decoding,
// rows in f16 and in blocks are converted in registers where they lie. Products and sums are
// float32. The result of a query does not depend on the other queries of the call. Included after
// one of the simd_*.h headers; internal linkage, see there.
#pragma once

#include <type_traits>

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

// The most queries for which rows are converted in registers, once for each block of queries:
// those of a decoded row, in most models. For 64 queries a converted tile is up to 13 % faster.
constexpr size_t kQueriesInPlace = 8;

static_assert(kAttentionSums % 4 == 0, "a block has at most four or eight queries");

// Rows of a tile in float32, and the most queries that are multiplied with them together. kStep
// dimensions from a multiple of it on have in common what Common is.
struct ConvertedRows {
  static constexpr int kQueries = 4;
  static constexpr size_t kStep = 16;
  struct Common {};
  const float* tile;
  size_t padded;

  RL_INLINE Common CommonAt(size_t /*t*/, size_t /*i*/) const { return {}; }
  RL_INLINE F32x16 At(size_t t, size_t i, const Common& /*common*/) const {
    return Load(tile + t * padded + i);
  }
  RL_INLINE void FetchAhead(size_t /*t*/, size_t /*i*/) const {}
};

// Rows of a tile in f16. The rows that are read next lie `ahead_by` elements after the rows
// `ahead`. Hardware does not foresee those of values, whose dimensions are read a block at a time.
struct HalfRows {
  static constexpr int kQueries = kAttentionSums % 8 == 0 ? 8 : 4;
  static constexpr size_t kStep = 16;
  struct Common {};
  const uint16_t* const* rows;
  const uint16_t* const* ahead;
  size_t ahead_by;

  RL_INLINE Common CommonAt(size_t /*t*/, size_t /*i*/) const { return {}; }
  RL_INLINE F32x16 At(size_t t, size_t i, const Common& /*common*/) const {
    return LoadHalf(rows[t] + i);
  }
  // A cache line holds 32 elements.
  RL_INLINE void FetchAhead(size_t t, size_t i) const {
    if (i % 32 == 0) PrefetchFar(ahead[t] + ahead_by + i);
  }
};

// The keys and values of a tile.
struct HalfTile {
  const uint16_t* keys[kAttentionTile];
  const uint16_t* values[kAttentionTile];
  size_t next_keys;  // elements from a key of this tile to that of the next one; 0 in the last tile
};

// Finds rows [first, first + count) of a run. Returns false if some are of another type.
RL_INLINE bool FindHalfTile(const KvRun& run, size_t first, size_t count, HalfTile& tile) {
  bool all_half = true;
  size_t stride = 0;
  ForEachRow(run, first, count, [&](size_t t, const KvSegment& segment, size_t row) {
    all_half = all_half && segment.key_type == DType::kF16 && segment.value_type == DType::kF16;
    tile.keys[t] = reinterpret_cast<const uint16_t*>(KeyRow(segment, row));
    tile.values[t] = reinterpret_cast<const uint16_t*>(ValueRow(segment, row));
    stride = segment.key_stride;
  });
  tile.next_keys = first + count < run.rows ? kAttentionTile * stride / sizeof(uint16_t) : 0;
  return all_half;
}

// Rows of a tile in blocks; those that are read next lie `ahead_by` bytes after the rows `ahead`.
template <typename Block>
struct BlockRows {
  static constexpr int kQueries = HalfRows::kQueries;
  static constexpr size_t kStep = kCacheBlock;
  using Common = F32x16;  // the scale of a block
  const uint8_t* const* rows;
  const uint8_t* const* ahead;
  size_t ahead_by;

  RL_INLINE const uint8_t* BlockAt(size_t t, size_t i) const {
    return rows[t] + i / kCacheBlock * sizeof(Block);
  }
  RL_INLINE Common CommonAt(size_t t, size_t i) const { return ScaleOfBlock(BlockAt(t, i)); }
  RL_INLINE F32x16 At(size_t t, size_t i, const Common& scale) const {
    return LoadSixteen<Block>(BlockAt(t, i), i % kCacheBlock, scale);
  }
  // A cache line holds more than a block.
  RL_INLINE void FetchAhead(size_t t, size_t i) const {
    if (i % kCacheBlock == 0) PrefetchFar(ahead[t] + ahead_by + i / kCacheBlock * sizeof(Block));
  }
};

// The keys and values of a tile in blocks.
struct BlockTile {
  const uint8_t* keys[kAttentionTile];
  const uint8_t* values[kAttentionTile];
  DType key_type, value_type;
  size_t next_keys;  // bytes from a key of this tile to that of the next one; 0 in the last tile
};

// Finds rows [first, first + count) of a run. Returns false if some are not in blocks.
[[gnu::noinline]] bool FindBlockTile(const KvRun& run, size_t first, size_t count,
                                     BlockTile& tile) {
  tile.key_type = run.segments->key_type;
  tile.value_type = run.segments->value_type;
  bool all_blocks = IsBlockType(tile.key_type) && IsBlockType(tile.value_type);
  if (!all_blocks) return false;
  size_t stride = 0;
  ForEachRow(run, first, count, [&](size_t t, const KvSegment& segment, size_t row) {
    all_blocks =
        all_blocks && segment.key_type == tile.key_type && segment.value_type == tile.value_type;
    tile.keys[t] = KeyRow(segment, row);
    tile.values[t] = ValueRow(segment, row);
    stride = segment.key_stride;
  });
  tile.next_keys = first + count < run.rows ? kAttentionTile * stride : 0;
  return all_blocks;
}

// scores[kQueries][t, t + kKeys) = the dot products of a block of queries and keys.
template <int kQueries, int kKeys, typename Rows>
RL_INLINE void ScoreBlock(const float* const q[kQueries], const Rows& keys, size_t t, size_t padded,
                          float* const scores[kQueries]) {
  F32x16 acc[kQueries][kKeys];
  for (int a = 0; a < kQueries; ++a) {
    for (int k = 0; k < kKeys; ++k) acc[a][k] = Zero();
  }
  for (size_t begin = 0; begin < padded; begin += Rows::kStep) {
    typename Rows::Common common[kKeys];
    for (int k = 0; k < kKeys; ++k) common[k] = keys.CommonAt(t + static_cast<size_t>(k), begin);
#pragma GCC unroll 2
    for (size_t part = 0; part < Rows::kStep / 16; ++part) {
      const size_t i = begin + 16 * part;
      F32x16 key[kKeys];
      for (int k = 0; k < kKeys; ++k) {
        key[k] = keys.At(t + static_cast<size_t>(k), i, common[k]);
        keys.FetchAhead(t + static_cast<size_t>(k), i);
      }
      for (int a = 0; a < kQueries; ++a) {
        const F32x16 query = Load(q[a] + i);
        for (int k = 0; k < kKeys; ++k) acc[a][k] = Fma(query, key[k], acc[a][k]);
      }
    }
  }
  for (int a = 0; a < kQueries; ++a) {
    for (int k = 0; k < kKeys; ++k) scores[a][t + static_cast<size_t>(k)] = ReduceAdd(acc[a][k]);
  }
}

template <int kQueries, typename Rows>
void ScoreQueries(const AttentionState& s, const uint32_t* queries, const Rows& rows, size_t keys) {
  constexpr int kKeys = kAttentionSums / kQueries;
  const float* q[kQueries];
  float* scores[kQueries];
  for (int a = 0; a < kQueries; ++a) {
    q[a] = s.q + queries[a] * s.padded;
    scores[a] = s.scores + queries[a] * kAttentionTile;
  }
  size_t t = 0;
  for (; t + kKeys <= keys; t += kKeys) {
    ScoreBlock<kQueries, kKeys>(q, rows, t, s.padded, scores);
  }
  for (; t < keys; ++t) ScoreBlock<kQueries, 1>(q, rows, t, s.padded, scores);
}

// acc = acc * decay + weights x values for a block of queries and 16 * kVectors dimensions.
template <int kQueries, int kVectors, typename Rows>
RL_INLINE void ValueBlock(const AttentionState& s, const uint32_t* queries, const Rows& values,
                          size_t keys, size_t i) {
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
    typename Rows::Common common;
    for (int v = 0; v < kVectors; ++v) {
      const size_t at = i + 16 * static_cast<size_t>(v);
      if (v % static_cast<int>(Rows::kStep / 16) == 0) common = values.CommonAt(t, at);
      value[v] = values.At(t, at, common);
      values.FetchAhead(t, at);
    }
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

template <int kQueries, typename Rows>
void MixValues(const AttentionState& s, const uint32_t* queries, const Rows& rows, size_t keys) {
  constexpr int kVectors = kAttentionSums / kQueries;
  size_t i = 0;
  for (; i + 16 * kVectors <= s.padded; i += 16 * kVectors) {
    ValueBlock<kQueries, kVectors>(s, queries, rows, keys, i);
  }
  for (; i < s.padded; i += 16) ValueBlock<kQueries, 1>(s, queries, rows, keys, i);
}

// Calls f(n, a) for blocks of n queries that begin at query a: blocks of kQueries, then of half as
// many, and so on.
template <int kQueries, typename F>
RL_INLINE void ForEachBlock(size_t a, size_t count, F f) {
  for (; a + kQueries <= count; a += kQueries) f(std::integral_constant<int, kQueries>{}, a);
  if constexpr (kQueries > 1) ForEachBlock<kQueries / 2>(a, count, f);
}

template <typename Rows>
RL_INLINE void ScoreKeys(const AttentionState& s, const Rows& rows, size_t keys) {
  ForEachBlock<Rows::kQueries>(0, s.active_count, [&](auto n, size_t a) {
    ScoreQueries<decltype(n)::value>(s, s.active + a, rows, keys);
  });
}

template <typename Rows>
RL_INLINE void AddValues(const AttentionState& s, const Rows& rows, size_t keys) {
  ForEachBlock<Rows::kQueries>(0, s.active_count, [&](auto n, size_t a) {
    MixValues<decltype(n)::value>(s, s.active + a, rows, keys);
  });
}

// ScoreKeys and AddValues of rows in blocks. Functions of their own, so that the code for rows in
// f16 stays as it is.
[[gnu::noinline]] void ScoreBlocks(const AttentionState& s, const BlockTile& tile, size_t keys) {
  if (tile.key_type == DType::kQ8_0) {
    ScoreKeys(s, BlockRows<sdk::BlockQ8_0>{tile.keys, tile.values, 0}, keys);
  } else {
    ScoreKeys(s, BlockRows<sdk::BlockQ4_0>{tile.keys, tile.values, 0}, keys);
  }
}
[[gnu::noinline]] void AddBlocks(const AttentionState& s, const BlockTile& tile, size_t keys) {
  if (tile.value_type == DType::kQ8_0) {
    AddValues(s, BlockRows<sdk::BlockQ8_0>{tile.values, tile.keys, tile.next_keys}, keys);
  } else {
    AddValues(s, BlockRows<sdk::BlockQ4_0>{tile.values, tile.keys, tile.next_keys}, keys);
  }
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
  HalfTile half;
  const bool in_place =
      s.active_count <= kQueriesInPlace && s.dim == s.padded && FindHalfTile(run, row, keys, half);
  const ConvertedRows converted{s.tile, s.padded};
  BlockTile tile;
  const bool blocks = !in_place && s.active_count <= kQueriesInPlace && s.dim == s.padded &&
                      FindBlockTile(run, row, keys, tile);
  if (in_place) {
    ScoreKeys(s, HalfRows{half.keys, half.values, 0}, keys);
  } else if (blocks) {
    ScoreBlocks(s, tile, keys);
  } else {
    LoadTile<RowsOf::kKeys>(run, row, keys, s, s.tile);
    ScoreKeys(s, converted, keys);
  }
  for (size_t a = 0; a < s.active_count; ++a) {
    SoftmaxStep(s, args.queries[s.active[a]], s.active[a], first, keys);
  }
  if (in_place) {
    AddValues(s, HalfRows{half.values, half.keys, half.next_keys}, keys);
  } else if (blocks) {
    AddBlocks(s, tile, keys);
  } else {
    LoadTile<RowsOf::kValues>(run, row, keys, s, s.tile);
    AddValues(s, converted, keys);
  }
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

// Attention of many queries on Intel AMX's matrix unit. As in attention.h, but with larger tiles of
// keys, and the factors of both products are sums of bf16 numbers (amx_tile.h): queries and keys of
// three, since a score may be far above one and its error is one of its weight's exponent; weights
// and values of two. Sums are float32. The result of a query does not depend on the other queries
// of the call. Internal linkage throughout, see simd_portable.h.
#pragma once

#include "backends/cpu/kernels/amx_tile.h"
#include "backends/cpu/kernels/attention_tiles.h"
#include "backends/cpu/kernels/scratch.h"

namespace rullama::cpu {
namespace {

constexpr size_t kKeyTile = kSplitAttentionTile;
constexpr size_t kQueryBlock = kSplitAttentionBlock;
constexpr int kScoreParts = kSplitScoreParts;
constexpr size_t kPairColumns = TileRegisters::kPanels * kLanes;  // of two panels
static_assert(kQueryBlock == TileRegisters::kMaxBatch);

// The scratch memory of a call. `padded` and `queries` are multiples of kSplitAttentionBlock.
struct SplitAttentionState : RunningSoftmax {
  size_t queries;
  uint16_t* q;       // [queries][kScoreParts][padded], scaled
  float* scores;     // [queries][kKeyTile]; then weights: bf16 [queries][2][kKeyTile]
  float* tile;       // [kKeyTile][padded]
  uint16_t* panels;  // [panel][parts], each in the layout of a part of Bf16Panel
};

RL_INLINE SplitAttentionState LayOutSplit(const AttentionArgs& args) {
  SplitAttentionState s{};
  s.dim = args.head_dim;
  s.padded = SplitAttentionPadding(args.head_dim);
  s.queries = SplitAttentionPadding(args.query_count);
  s.q = reinterpret_cast<uint16_t*>(AlignUp(args.scratch));
  s.acc = reinterpret_cast<float*>(s.q + s.queries * kScoreParts * s.padded);
  s.scores = s.acc + s.queries * s.padded;
  s.tile = s.scores + s.queries * kKeyTile;
  s.panels = reinterpret_cast<uint16_t*>(s.tile + kKeyTile * s.padded);
  s.max = reinterpret_cast<float*>(s.panels + kScoreParts * kKeyTile * s.padded);
  s.sum = s.max + s.queries;
  return s;
}

// Panels 2 i and 2 i + 1 of `depth` elements.
template <size_t kParts>
RL_INLINE PanelPair PairAt(const uint16_t* panels, size_t i, size_t depth) {
  const size_t part = depth * kLanes;
  const uint16_t* first = panels + 2 * i * kParts * part;
  return {{first, first + kParts * part}, part};
}

// Panels of sixteen keys, with pairs of head dimensions adjacent.
void FillKeyPanels(const SplitAttentionState& s) {
  for (size_t key = 0; key < kKeyTile; key += kLanes) {
    uint16_t* panel = s.panels + key * kScoreParts * s.padded;
    for (size_t d = 0; d < s.padded; d += 32) {
      const float* rows = s.tile + key * s.padded + d;
      StoreRowPairs<kScoreParts>([&](size_t r, size_t i) { return Load(rows + r * s.padded + i); },
                                 panel + d * kLanes, s.padded * kLanes);
    }
  }
}

// Panels of sixteen head dimensions, with the values of pairs of keys adjacent.
void FillValuePanels(const SplitAttentionState& s) {
  for (size_t key = 0; key < kKeyTile; key += 2) {
    const float* even = s.tile + key * s.padded;
    for (size_t d = 0; d < s.padded; d += kLanes) {
      StorePairs(Load(even + d), Load(even + s.padded + d),
                 s.panels + d * 2 * kKeyTile + key * kLanes, kKeyTile * kLanes);
    }
  }
}

// The scores of a block of queries with the first `keys` keys of the panels.
void ScoreBlockOnTiles(const SplitAttentionState& s, size_t first_query, size_t keys) {
  constexpr size_t kParts = kScoreParts;
  const SplitRows q{s.q + first_query * kParts * s.padded, kParts * s.padded * sizeof(uint16_t),
                    s.padded};
  for (size_t key = 0; key < keys; key += kPairColumns) {
    ZeroSums();
    for (size_t d = 0; d < s.padded; d += TileRegisters::kStep) {
      AddStep<true, kScoreParts, kScoreParts>(
          PairAt<kParts>(s.panels, key / kPairColumns, s.padded), d, q);
    }
    StoreSums<true>(s.scores + first_query * kKeyTile + key, kKeyTile * sizeof(float));
  }
}

// acc += weights x values for a block of queries.
void AddValuesOnTiles(const SplitAttentionState& s, size_t first_query, size_t keys) {
  const SplitRows weights{reinterpret_cast<const uint16_t*>(s.scores + first_query * kKeyTile),
                          kKeyTile * sizeof(float), kKeyTile};
  for (size_t d = 0; d < s.padded; d += kPairColumns) {
    float* acc = s.acc + first_query * s.padded + d;
    LoadSums<true>(acc, s.padded * sizeof(float));
    for (size_t key = 0; key < keys; key += TileRegisters::kStep) {
      AddStep<true, 2, 2>(PairAt<2>(s.panels, d / kPairColumns, kKeyTile), key, weights);
    }
    StoreSums<true>(acc, s.padded * sizeof(float));
  }
}

// Masks the scores of one query, replaces them by the parts of their weights, updates its running
// maximum and sum, and rescales its accumulator.
void SplitSoftmaxStep(const SplitAttentionState& s, const AttentionQuery& query, size_t index,
                      int64_t first, size_t keys) {
  constexpr size_t kVectors = kKeyTile / 16;
  float* scores = s.scores + index * kKeyTile;
  MaskScores<kKeyTile>(query, first, keys, scores);
  F32x16 weights[kVectors];
  F32x16 largest = Set1(s.max[index]);
  for (size_t v = 0; v < kVectors; ++v) {
    weights[v] = Load(scores + 16 * v);
    largest = Max(weights[v], largest);
  }
  const float max = ReduceMax(largest);
  // While every score is -inf, any finite reference gives weights of zero.
  const F32x16 reference = Set1(max == -kInfinity ? 0.0f : max);
  F32x16 sum = Zero();
  auto* parts = reinterpret_cast<uint16_t*>(scores);
  for (size_t v = 0; v < kVectors; ++v) {
    const F32x16 weight = Exp(Sub(weights[v], reference));
    sum = Add(sum, weight);
    StoreSplit<2>(weight, parts + 16 * v, kKeyTile);
  }
  float decay[16];
  Store(decay, Exp(Sub(Set1(s.max[index]), reference)));
  s.sum[index] = s.sum[index] * decay[0] + ReduceAdd(sum);
  s.max[index] = max;
  if (decay[0] == 1.0f) return;
  const F32x16 factor = Set1(decay[0]);
  float* acc = s.acc + index * s.padded;
  for (size_t d = 0; d < s.padded; d += 16) Store(acc + d, Mul(Load(acc + d), factor));
}

// Adds one tile of a run, rows [row, row + keys), to the blocks of queries that see part of it.
void AttendSplitTile(const AttentionArgs& args, const KvRun& run, size_t row, size_t keys,
                     const SplitAttentionState& s) {
  const int64_t first = run.segments->first_position + static_cast<int64_t>(row);
  const int64_t last = first + static_cast<int64_t>(keys) - 1;
  const auto for_each_block = [&](auto f) {
    for (size_t block = 0; block < s.queries; block += kQueryBlock) {
      const size_t left = args.query_count - block;
      const size_t end = block + (left < kQueryBlock ? left : kQueryBlock);
      bool sees = false;
      for (size_t i = block; i < end && !sees; ++i) sees = SeesAny(args.queries[i], first, last);
      if (sees) f(block, end);
    }
  };
  bool any = false;
  for_each_block([&](size_t, size_t) { any = true; });
  if (!any) return;
  for (size_t i = keys * s.padded; i < kKeyTile * s.padded; i += 16) Store(s.tile + i, Zero());
  LoadTile<RowsOf::kKeys>(run, row, keys, s, s.tile);
  FillKeyPanels(s);
  for_each_block([&](size_t block, size_t end) {
    ScoreBlockOnTiles(s, block, keys);
    for (size_t i = block; i < end; ++i) SplitSoftmaxStep(s, args.queries[i], i, first, keys);
  });
  LoadTile<RowsOf::kValues>(run, row, keys, s, s.tile);
  FillValuePanels(s);
  for_each_block([&](size_t block, size_t) { AddValuesOnTiles(s, block, keys); });
}

void StartSplitQueries(const AttentionArgs& args, const SplitAttentionState& s) {
  const F32x16 scale = Set1(args.scale);
  for (size_t i = 0; i < s.queries; ++i) {
    uint16_t* parts = s.q + i * kScoreParts * s.padded;
    for (size_t d = 0; d < s.padded; d += 16) {
      const size_t left = i < args.query_count && d < s.dim ? s.dim - d : 0;
      const F32x16 q = left == 0   ? Zero()
                       : left < 16 ? LoadPartial(args.queries[i].q + d, left)
                                   : Load(args.queries[i].q + d);
      StoreSplit<kScoreParts>(Mul(q, scale), parts + d, s.padded);
    }
  }
  StartSoftmax(s.queries, s);
}

void SplitAttention(const AttentionArgs& args) {
  const SplitAttentionState s = LayOutSplit(args);
  StartSplitQueries(args, s);
  TileRegisters registers;
  registers.Configure(kQueryBlock);
  ForEachTile<kKeyTile>(args, [&](const KvRun& run, size_t row, size_t keys) {
    AttendSplitTile(args, run, row, keys, s);
  });
  FinishQueries(args, s);
}

}  // namespace
}  // namespace rullama::cpu

// Attention of many rows on tensor cores for keys and values in f16 and in blocks: the same as
// attention, with each value of a query and of a block and each weight of a key rounded to one f16
// number, as keys and values are. Keys and values in f32, of rows without old ones, come from
// to_half. A block of eight warps takes some queries (rows times heads that share a key/value head)
// and goes through the keys in tiles with a running softmax. In a tile each warp computes the
// scores of 16 queries and 16 keys, or a part of their dims, and then an eighth of the dims of all
// results. Queries and results stay in registers, keys and values come through shared memory, and
// those of the next tile are on their way meanwhile.
#include "cache_words.kernel"
#include "high_low.kernel"
#include "math.kernel"
#include "matrices.cuh"
#include "subgroup.kernel"

#define kWarps (kThreads / 32)
#define kVectors (kDim / 8)                 // of 8 f16, of a head
#define kPitch (kVectors + 1)               // odd, so that rows begin in different banks
#define kOwn 4                              // vectors of a tile that a thread loads
#define kKeys (kOwn * kThreads / kVectors)  // of a tile
#define kKeyBlocks (kKeys / 16)
#define kQueryBlocks (kQueries / 16)
// Warps that share the dims of a block of scores, and the matrices of 16 dims of each of them.
#define kDimParts (kWarps / (kKeyBlocks * kQueryBlocks))
#define kPartMatrices (kDim / 16 / kDimParts)
#define kHelpers (kThreads / kQueries)  // threads of a query's softmax
#define kOwnKeys (kKeys / kHelpers)
#define kOwnWords (kOwnKeys / 2)
#define kScorePitch (kKeys + 4)              // in words
#define kResultMatrices (kDim / kWarps / 8)  // of 8 dims, of a warp's share of the results
#define kRows (kQueries / kGroup)
#define kMost(a, b) ((a) > (b) ? (a) : (b))

// The keys of a tile, then their values; in the beginning queries.
#define kValuesAt (kKeys * kPitch)
__shared__ uint4 shared_rows[kMost(2 * kKeys * kPitch, kQueries* kPitch)];
// Scores, by part of the dims; then the weights of the keys in place of the first part.
__shared__ __align__(16) float shared_score[kDimParts * kQueries * kScorePitch];
__shared__ int shared_key_pos[kKeys];
// The factors of a key and of its value; 0 if they are of another slot.
__shared__ float2 shared_unit[kUnits != 0 ? kKeys : 1];
__shared__ float shared_factor[kQueries];  // of the results so far
__shared__ float shared_scale[kQueries];   // of the scores
__shared__ int shared_first, shared_end;   // of the fresh keys that some query sees
// Of the rows of queries; a group may have one head.
__shared__ int shared_pos[kQueries], shared_last[kQueries], shared_slot[kQueries];
#include "visible_rows.kernel"

constexpr int kLargestPos = kNoPos - 1, kSmallestPos = -kLargestPos;
constexpr int kNoSlot = 0x7FFFFFFF;
// The largest weight of a key. It is this large because fewer of the small ones are then subnormals
// of f16.
constexpr float kLargestWeight = 4096.0f;

// The keys of a slot: old rows [old, old_end), then fresh rows [fresh, fresh_end), each in tiles.
struct Keys {
  int slot;
  int old, old_end, fresh, fresh_end;
};

struct Own {
  uint first_row, first_head, kv_head;
  uint query_block, key_block, dim_part;  // of this warp's scores
  uint queries[kPartMatrices][4];
  float result[kResultMatrices][kQueryBlocks][4];
  // Of the query that this thread helps; the maximum is in units of ln 2.
  float running_max, running_sum;
  float result_unit;  // of the results so far, which are divided by it; 1 without kUnits
  uint4 key[kOwn], value[kOwn];
  int slot[kOwn];         // of the key that a vector is from; -1: there is no such key
  int key_slot, key_pos;  // of the key whose position this thread stores
  float2 unit;            // its factor and that of its value
};

__forceinline__ uint Lane() { return ME % 32; }
__forceinline__ uint Warp() { return ME / 32; }
__forceinline__ int WarpMin(int x) { return __reduce_min_sync(0xFFFFFFFFu, x); }
__forceinline__ int WarpMax(int x) { return __reduce_max_sync(0xFFFFFFFFu, x); }

// ---- queries ------------------------------------------------------------------------------------

__forceinline__ uint4 ToHalf(const Eight& e, float factor) {
  const float4 a = e.x[0] * factor, b = e.x[1] * factor;
  return make_uint4(HalfPair(make_float2(a.x, a.y)), HalfPair(make_float2(a.z, a.w)),
                    HalfPair(make_float2(b.x, b.y)), HalfPair(make_float2(b.z, b.w)));
}

// A query times a power of two of its own, which takes its largest value to 2^8: far from both ends
// of f16.
__forceinline__ void StoreQuery(OWNED_ ARGS_ uint index, uint rows) {
  constexpr uint kTurns = kVectors / 32;
  const uint row = MINE(first_row) + index / kGroup;
  const Memory from = AdvanceBy(push.q, row * kHeads + MINE(first_head) + index % kGroup, kDim * 4);
  Eight e[kTurns];
  float most = 0.0f;
  UNROLL for (uint i = 0; i < kTurns; ++i) {
    const uint at = (i * 32 + Lane()) * 2;
    e[i].x[0] = row < rows ? FLOAT4S_AT(from)[at] : BROADCAST(0.0f);
    e[i].x[1] = row < rows ? FLOAT4S_AT(from)[at + 1] : BROADCAST(0.0f);
    most = fmaxf(most, Largest(e[i]));
  }
  const float unit = UnitOf(MaxOfLanes(most, 32));
  UNROLL for (uint i = 0; i < kTurns; ++i) {
    shared_rows[index * kPitch + i * 32 + Lane()] = ToHalf(e[i], Inverse(unit));
  }
  constexpr float kLog2E = 1.44269504f;
  if (Lane() == 0) shared_scale[index] = unit * (kScale * kLog2E);
}

__forceinline__ void Prepare(OWNED_ ARGS_ uint rows) {
  if (ME < kRows) StoreRow(ARGS ME, MINE(first_row) + ME, rows);
  UNROLL for (uint i = 0; i < kQueries; i += kWarps) StoreQuery(OWNED ARGS i + Warp(), rows);
  UNROLL for (uint n = 0; n < kResultMatrices; ++n) {
    UNROLL for (uint m = 0; m < kQueryBlocks; ++m) {
      UNROLL for (uint i = 0; i < 4; ++i) MINE(result)[n][m][i] = 0.0f;
    }
  }
  MINE(running_max) = -kInfinity;
  MINE(running_sum) = 0.0f;
  MINE(result_unit) = kUnits != 0 ? __uint_as_float(1u << 23) : 1.0f;
  BARRIER();
  const uint first = MINE(dim_part) * kPartMatrices * 2;
  const uint4* row = shared_rows + (MINE(query_block) * 16 + Lane() % 16) * kPitch + Lane() / 16;
  UNROLL for (uint d = 0; d < kPartMatrices; ++d) {
    LoadMatrices(MINE(queries)[d], row + first + d * 2);
  }
}

// ---- which keys ---------------------------------------------------------------------------------

// The smallest slot above `slot` of a row of this block; kNoSlot if there is none.
__forceinline__ int NextSlot(int slot) {
  int next = kNoSlot;
  for (uint row = Lane(); row < kRows; row += 32) {
    if (shared_slot[row] > slot) next = min(next, shared_slot[row]);
  }
  return WarpMin(next);
}

// The positions of keys of a slot that one or several queries see.
struct Visible {
  int first_old;
  int first;  // of the fresh ones
  int last;   // of both
};

__forceinline__ Visible VisibleOf(ARGS_ uint row, int past) {
  const int first_old = FirstOld(ARGS shared_pos[row], past);
  if (kCanvas != 0) return {first_old, kSmallestPos, kLargestPos};
  return {first_old, kWindow == 0 ? kSmallestPos : first_old, shared_last[row]};
}

// The positions from the first to the last that some row of the slot sees.
__forceinline__ Visible VisibleOfSlot(ARGS_ int slot, int past) {
  Visible all{kLargestPos, kLargestPos, kSmallestPos};
  for (uint row = Lane(); row < kRows; row += 32) {
    if (shared_slot[row] != slot) continue;
    const Visible one = VisibleOf(ARGS row, past);
    all = {min(all.first_old, one.first_old), min(all.first, one.first), max(all.last, one.last)};
  }
  return {WarpMin(all.first_old), WarpMin(all.first), WarpMax(all.last)};
}

// The rows of new keys between the first and the last that some query sees: shared_first and
// shared_end.
__forceinline__ void FindFresh(ARGS_ int slot, const Visible& all) {
  const int count = int(ROWS_OF(fresh));
  BARRIER();  // those of the last slot are used
  if (ME == 0) {
    shared_first = count;
    shared_end = 0;
  }
  BARRIER();
  int first = count, end = 0;
  for (int i = int(ME); i < count; i += int(kThreads)) {
    const int pos = INTS(kv_pos)[i];
    if (INTS(kv_slot)[i] != slot || pos < all.first || pos > all.last) continue;
    first = min(first, i);
    end = i + 1;
  }
  first = WarpMin(first);
  end = WarpMax(end);
  if (Lane() == 0) {
    atomicMin(&shared_first, first);
    atomicMax(&shared_end, end);
  }
  BARRIER();
}

__forceinline__ int TilesOf(int rows) { return (max(rows, 0) + int(kKeys) - 1) / int(kKeys); }
__forceinline__ int OldTiles(const Keys& keys) { return TilesOf(keys.old_end - keys.old); }

// ---- one tile -----------------------------------------------------------------------------------

// Eight elements of a head, as they lie in memory, and as f16.
__forceinline__ uint4 VectorIn(Memory rows, Offset head, uint vector, uint type) {
  if (type == kF16) return ((const uint4*)rows)[head * kVectors + vector];
  return AskForEight(rows + head * CacheBytes(type, kDim), vector * 8, type);
}
__forceinline__ uint4 HalvesIn(uint4 words, uint vector, uint type) {
  return type == kF16 ? words : TakeEightHalves(words, vector * 8, type);
}

// Loads the rows of a tile, and its last row in place of those that are not there.
__forceinline__ void LoadTile(OWNED_ ARGS_ const Keys& keys, int tile) {
  const int old_tiles = OldTiles(keys);
  const bool fresh = tile >= old_tiles;
  const int at =
      fresh ? keys.fresh + (tile - old_tiles) * int(kKeys) : keys.old + tile * int(kKeys);
  const int end = fresh ? keys.fresh_end : keys.old_end;
  const Memory key_base = fresh ? push.k_new : push.k_state;
  const Memory value_base = fresh ? push.v_new : push.v_state;
  UNROLL for (uint i = 0; i < kOwn; ++i) {
    const uint index = ME + i * kThreads;
    const int wanted = at + int(index / kVectors), key = min(wanted, end - 1);
    const Offset row = fresh ? uint(key) : Offset(keys.slot) * kCapacity + uint(key) % kCapacity;
    const Offset head = row * kKvHeads + MINE(kv_head);
    MINE(slot)[i] = wanted >= end ? -1 : fresh ? INTS(kv_slot)[key] : keys.slot;
    MINE(key)[i] = VectorIn(key_base, head, index % kVectors, kKeyType);
    MINE(value)[i] = VectorIn(value_base, head, index % kVectors, kValueType);
  }
  if (ME < kKeys) {
    const int wanted = at + int(ME), key = min(wanted, end - 1);
    MINE(key_slot) = wanted >= end ? -1 : fresh ? INTS(kv_slot)[key] : keys.slot;
    MINE(key_pos) = fresh ? INTS(kv_pos)[key] : key;
    if (kUnits != 0) {
      const Offset from = Offset(key) * kKvHeads + MINE(kv_head);
      MINE(unit) = make_float2(FLOATS(k_state)[from], FLOATS(v_state)[from]);
    }
  }
}

// Values of other slots, and those that are not there, become zeros: they may be anything, also
// what times 0 is not 0.
__forceinline__ void StoreTile(OWNED_ int slot) {
  UNROLL for (uint i = 0; i < kOwn; ++i) {
    const uint index = ME + i * kThreads, vector = index % kVectors;
    const uint at = index / kVectors * kPitch + vector;
    shared_rows[at] = HalvesIn(MINE(key)[i], vector, kKeyType);
    shared_rows[kValuesAt + at] = MINE(slot)[i] == slot
                                      ? HalvesIn(MINE(value)[i], vector, kValueType)
                                      : make_uint4(0, 0, 0, 0);
  }
  if (ME >= kKeys) return;
  shared_key_pos[ME] = MINE(key_slot) == slot ? MINE(key_pos) : kNoPos;
  if (kUnits != 0) {
    shared_unit[ME] = MINE(key_slot) == slot ? MINE(unit) : make_float2(0.0f, 0.0f);
  }
}

// There are two sums because a product waits for the last one that it is added to.
__forceinline__ void Scores(const Own& own_variables) {
  float sums[2][2][4] = {};
  const uint first = MINE(dim_part) * kPartMatrices * 2;
  const uint key = MINE(key_block) * 16 + Lane() / 16 * 8 + Lane() % 8;
  const uint4* row = shared_rows + key * kPitch + first + Lane() / 8 % 2;
  UNROLL for (uint d = 0; d < kPartMatrices; ++d) {
    uint keys[4];
    LoadMatrices(keys, row + d * 2);
    MultiplyMatrices(sums[d % 2][0], MINE(queries)[d], keys);
    MultiplyMatrices(sums[d % 2][1], MINE(queries)[d], keys + 2);
  }
  const uint query = MINE(dim_part) * kQueries + MINE(query_block) * 16 + Lane() / 4;
  float* to = shared_score + query * kScorePitch + MINE(key_block) * 16 + Lane() % 4 * 2;
  UNROLL for (uint n = 0; n < 2; ++n) {
    UNROLL for (uint i = 0; i < 4; ++i) {
      to[i / 2 * 8 * kScorePitch + n * 8 + i % 2] = sums[0][n][i] + sums[1][n][i];
    }
  }
}

// The score of a query and a key.
__forceinline__ float ScoreOf(uint index, uint key) {
  float score = 0.0f;
  UNROLL for (uint i = 0; i < kDimParts; ++i) {
    score += shared_score[(i * kQueries + index) * kScorePitch + key];
  }
  return score;
}

// Weights in place of scores; those of a query are this warp's alone. The query sees positions
// `first` to `last`.
__forceinline__ void Softmax(OWNED_ int first, int last) {
  const uint index = ME / kHelpers, first_key = ME % kHelpers * kOwnKeys;
  const float scale = shared_scale[index];
  float score[kOwnKeys];
  float most = MINE(running_max);
  UNROLL for (uint i = 0; i < kOwnKeys; ++i) {
    const int pos = shared_key_pos[first_key + i];
    float x = ScoreOf(index, first_key + i) * scale;
    if (kUnits != 0) x *= shared_unit[first_key + i].x;
    score[i] = pos >= first && pos <= last ? x : -kInfinity;
    most = fmaxf(most, score[i]);
  }
  most = MaxOfLanes(most, kHelpers);
  const float base = most == -kInfinity ? 0.0f : most;
  // Values come in units of their own, and results have the largest unit so far.
  float unit_now = MINE(result_unit);
  if (kUnits != 0) {
    UNROLL for (uint i = 0; i < kOwnKeys; ++i) {
      unit_now = fmaxf(unit_now, shared_unit[first_key + i].y);
    }
    unit_now = MaxOfLanes(unit_now, kHelpers);
  }
  const float down = Inverse(unit_now);
  float sum = 0.0f;
  uint weights[kOwnWords];
  UNROLL for (uint i = 0; i < kOwnWords; ++i) {
    float2 pair = make_float2(exp2f(score[i * 2] - base) * kLargestWeight,
                              exp2f(score[i * 2 + 1] - base) * kLargestWeight);
    sum += pair.x + pair.y;
    if (kUnits != 0) {
      pair.x *= shared_unit[first_key + i * 2].y * down;
      pair.y *= shared_unit[first_key + i * 2 + 1].y * down;
    }
    weights[i] = HalfPair(pair);
  }
  const float factor = exp2f(MINE(running_max) - base);
  MINE(running_sum) = MINE(running_sum) * factor + SumOfLanes(sum, kHelpers);
  MINE(running_max) = most;
  __syncwarp();  // all scores of the query are read
  UNROLL for (uint i = 0; i < kOwnWords; ++i) {
    ((uint*)shared_score)[index * kScorePitch + first_key / 2 + i] = weights[i];
  }
  if (ME % kHelpers == 0) {
    shared_factor[index] = kUnits != 0 ? factor * (MINE(result_unit) * down) : factor;
  }
  MINE(result_unit) = unit_now;
}

__forceinline__ void ScaleResults(Own& own_variables) {
  UNROLL for (uint m = 0; m < kQueryBlocks; ++m) {
    const float low = shared_factor[m * 16 + Lane() / 4];
    const float high = shared_factor[m * 16 + Lane() / 4 + 8];
    UNROLL for (uint n = 0; n < kResultMatrices; ++n) {
      UNROLL for (uint i = 0; i < 4; ++i) MINE(result)[n][m][i] *= i < 2 ? low : high;
    }
  }
}

__forceinline__ void AddValues(Own& own_variables) {
  UNROLL for (uint block = 0; block < kKeyBlocks; ++block) {
    uint weights[kQueryBlocks][4];
    UNROLL for (uint m = 0; m < kQueryBlocks; ++m) {
      const uint query = m * 16 + Lane() % 16;
      LoadMatrices(weights[m], shared_score + query * kScorePitch + block * 8 + Lane() / 16 * 4);
    }
    const uint key = block * 16 + Lane() / 8 % 2 * 8 + Lane() % 8;
    const uint4* row = shared_rows + kValuesAt + key * kPitch + Warp() * kResultMatrices;
    UNROLL for (uint n = 0; n < kResultMatrices; n += 2) {
      uint values[4];
      LoadTransposed(values, row + n + Lane() / 16);
      UNROLL for (uint m = 0; m < kQueryBlocks; ++m) {
        MultiplyMatrices(MINE(result)[n][m], weights[m], values);
        MultiplyMatrices(MINE(result)[n + 1][m], weights[m], values + 2);
      }
    }
  }
}

// ---- all tiles ----------------------------------------------------------------------------------

__forceinline__ void AddKeysOf(OWNED_ ARGS_ int slot) {
  const int past = INTS(past)[slot];
  const Visible all = VisibleOfSlot(ARGS slot, past);
  FindFresh(ARGS slot, all);
  const int old = max(all.first_old, max(past - int(kCapacity), 0));
  const Keys keys{slot, old, min(past, all.last + 1), shared_first, shared_end};
  const int old_tiles = OldTiles(keys), tiles = old_tiles + TilesOf(keys.fresh_end - keys.fresh);
  const uint row = ME / kHelpers / kGroup;
  Visible seen = VisibleOf(ARGS row, past);
  if (shared_slot[row] != slot) seen = {kLargestPos, kLargestPos, kSmallestPos};
  if (tiles > 0) LoadTile(OWNED ARGS keys, 0);
  for (int tile = 0; tile < tiles; ++tile) {
    BARRIER();  // the last tile and its weights are used
    StoreTile(OWNED slot);
    BARRIER();
    if (tile + 1 < tiles) LoadTile(OWNED ARGS keys, tile + 1);
    Scores(own_variables);
    BARRIER();
    Softmax(OWNED tile < old_tiles ? seen.first_old : seen.first, seen.last);
    BARRIER();
    ScaleResults(own_variables);
    AddValues(own_variables);
  }
}

__forceinline__ void StoreResults(OWNED_ ARGS_ uint rows) {
  BARRIER();
  const float sum = MINE(running_sum);
  if (ME % kHelpers == 0) {
    shared_factor[ME / kHelpers] = sum > 0.0f ? MINE(result_unit) / sum : 0.0f;
  }
  BARRIER();
  ScaleResults(own_variables);
  UNROLL for (uint m = 0; m < kQueryBlocks; ++m) {
    UNROLL for (uint half_matrix = 0; half_matrix < 2; ++half_matrix) {
      const uint query = m * 16 + half_matrix * 8 + Lane() / 4;
      const uint row = MINE(first_row) + query / kGroup;
      if (row >= rows) continue;
      float* to = FLOATS(y) + (Offset(row) * kHeads + MINE(first_head) + query % kGroup) * kDim +
                  Warp() * kResultMatrices * 8 + Lane() % 4 * 2;
      UNROLL for (uint n = 0; n < kResultMatrices; ++n) {
        *(float2*)(to + n * 8) = make_float2(MINE(result)[n][m][half_matrix * 2],
                                             MINE(result)[n][m][half_matrix * 2 + 1]);
      }
    }
  }
}

KERNEL(attention_half_coop) {
  NEW_OWN;
  MINE(query_block) = Warp() % kQueryBlocks;
  MINE(key_block) = Warp() / kQueryBlocks % kKeyBlocks;
  MINE(dim_part) = Warp() / (kQueryBlocks * kKeyBlocks);
  const uint rows = ROWS_OF(rows);
  // The last rows first: in a prompt they see most keys.
  MINE(first_row) = (WORKGROUPS_Z - 1 - WORKGROUP_Z) * kRows;
  if (MINE(first_row) >= rows) return;
  MINE(first_head) = WORKGROUP_Y * kGroup;
  MINE(kv_head) = MINE(first_head) / (kHeads / kKvHeads);
  Prepare(OWNED ARGS rows);
  for (int slot = NextSlot(-1); slot != kNoSlot; slot = NextSlot(slot)) AddKeysOf(OWNED ARGS slot);
  StoreResults(OWNED ARGS rows);
}

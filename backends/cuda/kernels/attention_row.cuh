// Attention of one row, or of each of several, over the old rows of its slot and the fresh ones. A
// block takes a few query heads of a row, QueryRow(), that share a key/value head, and every
// `parts`-th tile of keys; the last one to be done joins the parts. Norms and rotations of the
// row's queries, key and value are computed on the way where the host left them out
// (HeadTransform). Keys and values are on their way before anything waits. Accumulates in f32.
#include "cache_words.kernel"
#include "lanes.kernel"
#include "math.kernel"
#include "visible.kernel"

#define kKeys (THREADS / kSplit)  // of a tile
// Code that a kernel runs once comes from memory, like weights: what is not often repeated stays
// short.
#define ROLLED _Pragma("unroll 1")

#define kQuads (kDim / 4)
#define kLoads ((kQuads + kSplit - 1) / kSplit)  // of a key, by each thread that shares it
#define kTeamKeys ((kKeys + kTeams - 1) / kTeams)
// The longest heads of open forms, in vectors of four, and what follows from that.
#define kMostQuads 256
#define kMostLoads ROOM_FOR(kLoads, kMostQuads / 16)
#define kMostTeamKeys ROOM_FOR(kTeamKeys, 16)
#define kMaxParts 64
// As many tiles one after another take less than joining the sums of several blocks.
#define kFewTiles 2
constexpr uint kTransforms = 3;  // of the query, the key and the value

// Queries, the fresh key and value, in the end the sums of teams.
__shared__ float4 shared_rows[(THREADS + 2 * ROOM_FOR(kQuads, kMostQuads)) * kGroup];
// Scores, then weights, of this tile and the one before.
__shared__ float shared_p[2 * kKeys * kGroup];
__shared__ float shared_weight[kMaxParts * kGroup];
__shared__ float shared_norm[kGroup + 2];
__shared__ float2 shared_turns[kTransforms * 2 * ROOM_FOR(kQuads, kMostQuads)];
__shared__ float shared_max[kGroup];
__shared__ float shared_sum[kGroup];
__shared__ float shared_factor[kGroup];
__shared__ uint shared_arrived;
__shared__ HeadTransform shared_heads[kTransforms];

// The keys that the row may see have numbers from `first` to `past`, which is the first fresh one
// of the slot; those of all fresh rows follow it, for steps in which a slot has several. The row is
// at `pos` and sees keys up to `last`.
//
// Where the fresh rows of the slot follow one another up to the row's own, their numbers are their
// positions: those from `stored` on are read from them as if the cache had them, and number `past`
// is the row's own. So a row gives the same bytes in a step with the rows before it and after them.
struct Keys {
  int first, past, pos, last, slot;
  int stored;     // the number of cached keys
  int fresh_row;  // which has number `past`
  bool sees_fresh, has_more;
};

// The rows of keys, or of values, of this head: those of the slot in the cache, and the fresh ones.
struct HeadRows {
  Memory cached, fresh;
};

struct Own {
  Keys keys;
  bool has_key, has_value;  // the fresh ones are in shared memory
  HeadRows key_rows, value_rows;
  uint4 k_words[kMostLoads];
  uint4 v_words[kMostTeamKeys];
  float4 acc[kGroup];
};

__forceinline__ uint QueryRow() { return kOneRow != 0 ? 0 : WORKGROUP_Z; }
__forceinline__ uint FirstHead() { return WORKGROUP_Y * kGroup; }
__forceinline__ uint KvHead() { return FirstHead() / (kHeads / kKvHeads); }

// ---- the row's own heads ------------------------------------------------------------------------

// Queries of the block come first, then the key and the value.
__forceinline__ uint TransformOf(uint item) { return item < kGroup ? 0 : item - kGroup + 1; }
__forceinline__ const HeadTransform& HeadsOf(uint item) { return shared_heads[TransformOf(item)]; }
__forceinline__ const float* ValuesOf(uint item) {
  const uint row_heads = item < kGroup ? kHeads : kKvHeads;
  const uint head = item < kGroup ? FirstHead() + item : KvHead();
  return FLOATS_AT(AdvanceBy(HeadsOf(item).x, QueryRow() * row_heads + head, kDim * 4));
}

// The items are as many as subgroups at most: each subgroup has one.
static_assert(kGroup + 2 <= SUBGROUP_COUNT, "an item has no subgroup");
#define kItemQuads ((ROOM_FOR(kQuads, kMostQuads) + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE)

// The values of this subgroup's item, if they are to be normed.
struct Item {
  float4 quads[kItemQuads];
};
__forceinline__ bool IsNormed() {
  return SUBGROUP_INDEX < kGroup + 2 && HeadsOf(SUBGROUP_INDEX).x != nullptr &&
         HeadsOf(SUBGROUP_INDEX).eps >= 0.0f;
}
__forceinline__ Item LoadItem() {
  Item item;
  const float4* values = IsNormed() ? (const float4*)ValuesOf(SUBGROUP_INDEX) : nullptr;
  UNROLL for (uint i = 0; i < kItemQuads; ++i) {
    const uint quad = i * SUBGROUP_SIZE + SUBGROUP_LANE;
    item.quads[i] = values != nullptr && quad < kQuads ? values[quad] : BROADCAST(0.0f);
  }
  return item;
}

// Leaves the factor of the norm of each item.
__forceinline__ void FindNorm(const Item& item) {
  if (SUBGROUP_INDEX >= kGroup + 2) return;
  float squares = 0.0f;
  UNROLL for (uint i = 0; i < kItemQuads; ++i) {
    const float4 x = item.quads[i];
    squares += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
  }
  squares = SumOfLanes(squares, SUBGROUP_SIZE);
  const HeadTransform& heads = HeadsOf(SUBGROUP_INDEX);
  if (SUBGROUP_LANE == 0) {
    shared_norm[SUBGROUP_INDEX] =
        heads.eps < 0.0f ? 1.0f : rsqrtf(squares / float(kDim) + heads.eps);
  }
}

// A thread finds the turns of some pairs of elements, of all transforms together.
#define kPairsOfHeads ((kTransforms * 2 * ROOM_FOR(kQuads, kMostQuads) + THREADS - 1) / THREADS)
struct Positions {
  uint pos[kPairsOfHeads];
};
__forceinline__ bool HasTurn(uint i) {
  const uint transform = i / (kDim / 2);
  return transform < kTransforms && shared_heads[transform].x != nullptr &&
         i % (kDim / 2) < shared_heads[transform].half_rot;
}
__forceinline__ Positions LoadPositions() {
  Positions positions;
  UNROLL for (uint t = 0; t < kPairsOfHeads; ++t) {
    const uint i = t * THREADS + ME;
    positions.pos[t] =
        HasTurn(i) ? __ldcg(UINTS_AT(shared_heads[i / (kDim / 2)].pos) + QueryRow()) : 0;
  }
  return positions;
}
// Leaves the turn of each pair whose position is not known to be the one that it was found for.
__forceinline__ void FindTurns(const Positions& positions, const Positions* known) {
  UNROLL for (uint t = 0; t < kPairsOfHeads; ++t) {
    const uint i = t * THREADS + ME, pos = positions.pos[t];
    if (!HasTurn(i) || (known != nullptr && known->pos[t] == pos)) continue;
    const uint2 rate = ((const uint2*)shared_heads[i / (kDim / 2)].rates)[i % (kDim / 2)];
    shared_turns[i] = CosSin(Turns(pos, rate));
  }
}

// Rounds new keys and values to the type of the cache, which is f32 or f16 for both where heads are
// transformed. One block of a head stores them for other readers.
__forceinline__ float Kept(ARGS_ uint item, uint i, float value) {
  if (item < kGroup) return value;
  const uint bits = kKeyType == kF32 ? 0 : FloatToHalf(value);
  if (FirstHead() % (kHeads / kKvHeads) == 0) {
    const Memory fresh = item == kGroup ? push.k_new : push.v_new;
    const Offset to = (Offset(QueryRow()) * kKvHeads + KvHead()) * kDim + i;
    if (kKeyType == kF32) {
      FLOATS_AT(fresh)[to] = value;
    } else {
      USHORTS_AT(fresh)[to] = ushort(bits);
    }
  }
  return kKeyType == kF32 ? value : HalfToFloat(bits);
}

__forceinline__ void PutElement(ARGS_ uint item, uint i, float value) {
  ((float*)shared_rows)[item * kDim + i] = Kept(ARGS item, i, value);
}

// Two elements of an item: a pair that turns, or two of the rest.
__forceinline__ void RotatePair(ARGS_ uint item, uint pair) {
  const HeadTransform& heads = HeadsOf(item);
  if (heads.x == nullptr) return;
  const bool turns = pair < heads.half_rot;
  const uint i = turns ? pair : 2 * pair, j = turns ? pair + heads.half_rot : i + 1;
  const float* values = ValuesOf(item);
  float a = values[i] * shared_norm[item], b = values[j] * shared_norm[item];
  if (heads.weight != nullptr) {
    a *= FLOATS_AT(heads.weight)[i];
    b *= FLOATS_AT(heads.weight)[j];
  }
  float2 turn = make_float2(1.0f, 0.0f);
  if (turns) turn = shared_turns[TransformOf(item) * (kDim / 2) + pair];
  const float2 turned = Turned(a, b, turn);
  PutElement(ARGS item, i, turned.x);
  PutElement(ARGS item, j, turned.y);
}

__forceinline__ void PrepareHeads(ARGS_ const Item& item, bool fresh) {
  const uint items = fresh ? kGroup + 2 : kGroup;
  FindNorm(item);
  BARRIER();
  ROLLED for (uint i = ME; i < items * (kDim / 2); i += THREADS) {
    RotatePair(ARGS i / (kDim / 2), i % (kDim / 2));
  }
  if (ME < kGroup) {
    shared_max[ME] = -kInfinity;
    shared_sum[ME] = 0.0f;
  }
  BARRIER();
}

// ---- keys and values ----------------------------------------------------------------------------

__forceinline__ uint FreshRows(const Push& push) {
  return push.fresh != 0 ? push.fresh : ((const Step*)push.step)->t;
}

__forceinline__ bool Reaches(ARGS_ const Keys& keys, int key_pos) {
  return SeesFresh(ARGS keys.pos, keys.last, key_pos);
}

__forceinline__ bool IsOther(ARGS_ const Keys& keys, int row) {
  return row < int(FreshRows(push)) && row != keys.fresh_row && INTS(kv_slot)[row] == keys.slot;
}

__forceinline__ bool Sees(ARGS_ const Keys& keys, int at) {
  if (at < keys.past) return Reaches(ARGS keys, at);
  if (at == keys.past) return keys.sees_fresh;
  if (kOneRow != 0 || !keys.has_more) return false;
  const int other = at - keys.past - 1;
  return IsOther(ARGS keys, other) && Reaches(ARGS keys, INTS(kv_pos)[other]);
}

// Up to this many fresh rows the lanes of a subgroup look at one row each.
constexpr int kRowsOfLanes = SUBGROUP_SIZE;
__forceinline__ uint LanesWith(bool condition) { return __ballot_sync(0xFFFFFFFFu, condition); }
__forceinline__ bool IsOfSlot(ARGS_ const Keys& keys, int row) {
  return row < int(FreshRows(push)) && INTS(kv_slot)[row] == keys.slot;
}

// The first fresh row of the slot, and whether there is another.
__forceinline__ void FindFreshRow(ARGS_ Keys& keys) {
  int found = -1;
  keys.has_more = false;
  if (int(FreshRows(push)) <= kRowsOfLanes) {
    const uint rows = LanesWith(IsOfSlot(ARGS keys, int(SUBGROUP_LANE)));
    found = __ffs(int(rows)) - 1;
    keys.has_more = (rows & (rows - 1)) != 0;
  } else {
    ROLLED for (int row = int(FreshRows(push)) - 1; row >= 0; --row) {
      if (INTS(kv_slot)[row] != keys.slot) continue;
      keys.has_more = found >= 0;
      found = row;
    }
  }
  keys.fresh_row = max(found, 0);
  keys.sees_fresh = found >= 0;
}

// OwnRow() by lanes.
__forceinline__ int OwnRowOfLanes(ARGS_ const Keys& keys) {
  const int lane = int(SUBGROUP_LANE), before = keys.pos - keys.stored;
  const bool of_slot = IsOfSlot(ARGS keys, lane);
  const int pos = of_slot ? INTS(kv_pos)[lane] : 0;
  const int own = 31 - __clz(int(LanesWith(of_slot && pos == keys.pos)));
  if (own < before) return -1;
  const uint follow = LanesWith(of_slot && pos == keys.pos - (own - lane));
  const uint wanted = ((1u << before) - 1u) << (own - before);
  return (follow & wanted) == wanted ? own : -1;
}

// The fresh row of the slot at position `pos`, if those before it are the rows before; or -1.
__forceinline__ int OwnRow(ARGS_ const Keys& keys) {
  const int rows = int(FreshRows(push)), before = keys.pos - keys.stored;
  if (rows <= kRowsOfLanes) return OwnRowOfLanes(ARGS keys);
  int own = -1;
  ROLLED for (int row = 0; row < rows; ++row) {
    if (INTS(kv_slot)[row] == keys.slot && INTS(kv_pos)[row] == keys.pos) own = row;
  }
  if (own < before) return -1;
  ROLLED for (int i = 1; i <= before; ++i) {
    if (INTS(kv_slot)[own - i] != keys.slot || INTS(kv_pos)[own - i] != keys.pos - i) return -1;
  }
  return own;
}

// The row sees nothing after its own key.
__forceinline__ void JoinFreshRows(ARGS_ Keys& keys) {
  if (kCanvas != 0 || keys.last != keys.pos || keys.pos < keys.stored) return;
  const int own = OwnRow(ARGS keys);
  if (own < 0) return;
  keys.fresh_row = own;
  keys.past = keys.pos;
  keys.has_more = false;
}

// The first key that a row at `pos` sees and that the cache has.
__forceinline__ int FirstSeen(ARGS_ int pos, int past) {
  return min(max(FirstOld(ARGS pos, past), max(past - int(kCapacity), 0)), past);
}

__forceinline__ Keys FindKeys(const Push& push) {
  const uint row = QueryRow();
  const Memory last = shared_heads[0].last;
  Keys keys;
  keys.slot = INTS(q_slot)[row];
  keys.pos = INTS(q_pos)[row];
  keys.last = last == nullptr ? keys.pos : INTS_AT(last)[row];
  // All that a plan of one row reads is on its way at the same time.
  const int only_past = INTS(past)[0];
  const int first_slot = INTS(kv_slot)[0], first_pos = INTS(kv_pos)[0];
  const bool valid = keys.slot >= 0 && keys.slot < int(kSlots);
  keys.past = !valid ? 0 : kSlots == 1 ? only_past : INTS(past)[keys.slot];
  keys.stored = keys.past;
  if (kOneRow != 0) {
    keys.fresh_row = 0;
    keys.sees_fresh = first_slot == keys.slot;
    keys.has_more = false;
  } else {
    FindFreshRow(ARGS keys);
    if (valid) JoinFreshRows(ARGS keys);
  }
  keys.first = FirstSeen(ARGS keys.pos, keys.past);
  const int fresh_pos = kOneRow != 0 ? first_pos : INTS(kv_pos)[keys.fresh_row];
  keys.sees_fresh = valid && keys.sees_fresh && Reaches(ARGS keys, fresh_pos);
  keys.has_more = valid && keys.has_more;
  return keys;
}

__forceinline__ HeadRows RowsOf(int slot, Memory state, Memory fresh, uint type) {
  const Offset of_slot = Offset(slot) * kCapacity * kKvHeads;
  const uint bytes = CacheBytes(type, kDim);
  return {state + (of_slot + KvHead()) * bytes, fresh + KvHead() * bytes};
}

// The row of a number, whose place in the cache is `place` if that is not beyond its end. A
// remainder takes long, and so there is one for a tile.
__forceinline__ Memory RowAt(const Keys& keys, const HeadRows& rows, int at, uint place,
                             uint type) {
  // Before its own row there are those of the keys before it, after it all in their order.
  const uint new_row = kOneRow != 0      ? 0
                       : at <= keys.past ? uint(keys.fresh_row - (keys.past - at))
                                         : uint(at - keys.past - 1);
  const bool is_new = at >= keys.stored;
  ROLLED while (place >= kCapacity) place -= kCapacity;
  const Offset row = Offset(is_new ? new_row : place) * (kKvHeads * CacheBytes(type, kDim));
  return (is_new ? rows.fresh : rows.cached) + row;
}
__forceinline__ uint PlaceOf(int tile) { return uint(tile) % kCapacity; }

// Four elements of a row, as they lie in memory.
__forceinline__ uint4 QuadIn(Memory row, uint quad, uint type) {
  if (type == kF32) return ((const uint4*)row)[quad];
  if (IsInBlocks(type)) return AskForFour(row, quad * 4, type);
  const uint2 words = ((const uint2*)row)[quad];
  return make_uint4(words.x, words.y, 0, 0);
}
__forceinline__ float4 QuadOf(uint4 words, uint quad, uint type) {
  if (type == kF32) return as_float4(words);
  if (type == kF16) return HalvesOf(XY(words));
  if (type == kBF16) {
    return as_float4(
        make_uint4(words.x << 16, words.x & ~0xFFFFu, words.y << 16, words.y & ~0xFFFFu));
  }
  return TakeFour(words, quad * 4, type);
}

__forceinline__ void LoadKeys(OWNED_ ARGS_ int tile) {
  const Keys& keys = MINE(keys);
  const int key = int(ME / kSplit), at = tile + key;
  const bool wanted = Sees(ARGS keys, at) && !(MINE(has_key) && at == keys.past);
  const Memory row = RowAt(keys, MINE(key_rows), at, PlaceOf(tile) + key, kKeyType);
  UNROLL for (uint b = 0; b < kMostLoads; ++b) {
    const uint quad = min(ME % kSplit + b * kSplit, kQuads - 1);
    MINE(k_words)[b] = wanted && b < kLoads ? QuadIn(row, quad, kKeyType) : make_uint4(0, 0, 0, 0);
  }
}

__forceinline__ void LoadValues(OWNED_ ARGS_ int tile) {
  const Keys& keys = MINE(keys);
  const uint team = ME / kQuads, place = PlaceOf(tile);
  UNROLL for (uint t = 0; t < kMostTeamKeys; ++t) {
    const uint key = team * kTeamKeys + t;
    const int at = tile + int(key);
    // Rows that the query does not see may hold anything.
    const bool wanted = t < kTeamKeys && team < kTeams && key < kKeys && Sees(ARGS keys, at) &&
                        !(MINE(has_value) && at == keys.past);
    const Memory row = RowAt(keys, MINE(value_rows), at, place + key, kValueType);
    MINE(v_words)[t] = wanted ? QuadIn(row, ME % kQuads, kValueType) : make_uint4(0, 0, 0, 0);
  }
}

// ---- one tile -----------------------------------------------------------------------------------

__forceinline__ void Scores(OWNED_ ARGS_ int tile, uint buffer_at) {
  const Keys& keys = MINE(keys);
  const uint key = ME / kSplit, part = ME % kSplit;
  const int at = tile + int(key);
  const bool is_fresh = MINE(has_key) && at == keys.past;
  float sum[kGroup];
  UNROLL for (uint i = 0; i < kGroup; ++i) sum[i] = 0.0f;
  UNROLL for (uint b = 0; b < kMostLoads; ++b) {
    const uint quad = part + b * kSplit;
    if (b >= kLoads || quad >= kQuads) continue;
    const float4 k =
        is_fresh ? shared_rows[kGroup * kQuads + quad] : QuadOf(MINE(k_words)[b], quad, kKeyType);
    UNROLL for (uint i = 0; i < kGroup; ++i) {
      const float4 q = shared_rows[i * kQuads + quad];
      sum[i] = fma(k.x, q.x, fma(k.y, q.y, fma(k.z, q.z, fma(k.w, q.w, sum[i]))));
    }
  }
  UNROLL for (uint i = 0; i < kGroup; ++i) {
    const float score = SumOfLanes(sum[i], kSplit) * kScale;
    if (part == i) {
      shared_p[buffer_at + i * kKeys + key] = Sees(ARGS keys, at) ? score : -kInfinity;
    }
  }
}

// Scores to weights, with a running maximum.
__forceinline__ void Softmax(uint buffer_at) {
  ROLLED for (uint i = SUBGROUP_INDEX; i < kGroup; i += SUBGROUP_COUNT) {
    const float old = shared_max[i];
    const bool is_key = SUBGROUP_LANE < kKeys;
    float* p = shared_p + buffer_at + i * kKeys + SUBGROUP_LANE;
    const float score = is_key ? *p : -kInfinity;
    const float most = fmaxf(MaxOfLanes(score, SUBGROUP_SIZE), old);
    const float weight = score == -kInfinity ? 0.0f : Exp(score - most);
    if (is_key) *p = weight;
    const float sum = SumOfLanes(weight, SUBGROUP_SIZE);
    __syncwarp();  // all lanes have read the maximum
    if (SUBGROUP_LANE == 0) {
      const float factor = old == -kInfinity ? 0.0f : Exp(old - most);
      shared_factor[i] = factor;
      shared_max[i] = most;
      shared_sum[i] = shared_sum[i] * factor + sum;
    }
  }
}

__forceinline__ void AddValues(OWNED_ int tile, uint buffer_at) {
  const uint team = ME / kQuads;
  UNROLL for (uint i = 0; i < kGroup; ++i) MINE(acc)[i] = shared_factor[i] * MINE(acc)[i];
  if (team >= kTeams) return;
  UNROLL for (uint t = 0; t < kMostTeamKeys; ++t) {
    const uint key = team * kTeamKeys + t;
    if (t >= kTeamKeys || key >= kKeys) continue;
    const bool is_fresh = MINE(has_value) && tile + int(key) == MINE(keys).past;
    const float4 v = is_fresh ? shared_rows[(kGroup + 1) * kQuads + ME % kQuads]
                              : QuadOf(MINE(v_words)[t], ME % kQuads, kValueType);
    UNROLL for (uint i = 0; i < kGroup; ++i) {
      MINE(acc)[i] = fma(BROADCAST(shared_p[buffer_at + i * kKeys + key]), v, MINE(acc)[i]);
    }
  }
}

// ---- the end ------------------------------------------------------------------------------------

// Sums over teams, each of which put a sum for every quad of the group's heads into shared memory.
__forceinline__ float4 SumOfTeams(uint teams, uint output_at) {
  float4 sum = BROADCAST(0.0f);
  ROLLED for (uint team = 0; team < teams; ++team) sum +=
      shared_rows[team * kGroup * kQuads + output_at];
  return sum;
}

// The sums of the parts of this row, and after them their sums of weights and maxima.
__forceinline__ float4* PartialOf(ARGS_ uint parts_in_all) {
  return (float4*)AdvanceBy(push.partial, QueryRow() * parts_in_all * kHeads, (kDim + 4) * 4);
}

// Weights of the parts' sums: y = sum w_i acc_i with w_i = exp(max_i - max) / sum_j exp(max_j -
// max) sum_j.
__forceinline__ void WeighParts(const float4* stats, uint parts) {
  ROLLED for (uint i = SUBGROUP_INDEX; i < kGroup; i += SUBGROUP_COUNT) {
    float most = -kInfinity;
    ROLLED for (uint part = SUBGROUP_LANE; part < parts; part += SUBGROUP_SIZE) {
      most = fmaxf(most, stats[part * kHeads + FirstHead() + i].y);
    }
    most = MaxOfLanes(most, SUBGROUP_SIZE);
    float sum = 0.0f;
    ROLLED for (uint part = SUBGROUP_LANE; part < parts; part += SUBGROUP_SIZE) {
      const float4 stat = stats[part * kHeads + FirstHead() + i];
      const float weight = stat.y == -kInfinity ? 0.0f : Exp(stat.y - most);
      shared_weight[i * kMaxParts + part] = weight;
      sum += weight * stat.x;
    }
    sum = SumOfLanes(sum, SUBGROUP_SIZE);
    if (SUBGROUP_LANE == 0) shared_factor[i] = sum > 0.0f ? 1.0f / sum : 0.0f;
  }
}

__forceinline__ void Merge(ARGS_ uint parts_in_all, uint parts) {
  constexpr uint kAhead = 4;  // sums on their way at a time
  const float4* sums = PartialOf(ARGS parts_in_all);
  const uint outputs = kGroup * kQuads;
  WeighParts(sums + parts_in_all * kHeads * kQuads, parts);
  BARRIER();
  const uint teams = max(THREADS / outputs, 1u);
  ROLLED for (uint at = ME; at < teams * outputs; at += THREADS) {
    const uint output_at = at % outputs;
    const uint head = output_at / kQuads;
    float4 sum = BROADCAST(0.0f);
    ROLLED for (uint first_part = at / outputs; first_part < parts; first_part += teams * kAhead) {
      float4 values[kAhead];
      UNROLL for (uint i = 0; i < kAhead; ++i) {
        const uint part = min(first_part + i * teams, parts - 1);
        values[i] = sums[(part * kHeads + FirstHead()) * kQuads + output_at];
      }
      UNROLL for (uint i = 0; i < kAhead; ++i) {
        const uint part = first_part + i * teams;
        const float weight = shared_weight[head * kMaxParts + min(part, parts - 1)];
        sum += (part < parts ? weight : 0.0f) * values[i];
      }
    }
    shared_rows[at] = sum;
  }
  BARRIER();
  ROLLED for (uint at = ME; at < outputs; at += THREADS) {
    OUT_FLOAT4S(y)
    [(Offset(QueryRow()) * kHeads + FirstHead()) * kQuads + at] =
        SumOfTeams(teams, at) * shared_factor[at / kQuads];
  }
}

// Every thread of the block calls it and gets the result. The counter is 0 before the first of
// `expected` blocks, and again after the last.
__forceinline__ bool ArrivesLast(uint* counter, uint expected) {
  __threadfence();
  BARRIER();
  if (ME == 0) shared_arrived = atomicAdd(counter, 1u);
  BARRIER();
  __threadfence();
  const bool last = shared_arrived + 1 == expected;
  if (last && ME == 0) *counter = 0;
  return last;
}

// The other fresh rows of the slot, of which the last tile had some.
__forceinline__ void AddOthers(OWNED_ ARGS_ int tile, uint buffer_at) {
  const int end = MINE(keys).past + 1 + int(FreshRows(push));
  for (; tile < end; tile += int(kKeys)) {
    LoadKeys(OWNED ARGS tile);
    LoadValues(OWNED ARGS tile);
    Scores(OWNED ARGS tile, buffer_at);
    BARRIER();
    Softmax(buffer_at);
    BARRIER();
    AddValues(OWNED tile, buffer_at);
    buffer_at = kKeys * kGroup - buffer_at;
  }
}

__forceinline__ void Finish(OWNED_ ARGS_ uint part, uint parts_in_all, uint parts) {
  float4* partial = PartialOf(ARGS parts_in_all);
  BARRIER();
  const uint team = ME / kQuads;
  if (team < kTeams) {
    UNROLL for (uint i = 0; i < kGroup; ++i) {
      shared_rows[(team * kGroup + i) * kQuads + ME % kQuads] = MINE(acc)[i];
    }
  }
  BARRIER();
  ROLLED for (uint at = ME; at < kGroup * kQuads; at += THREADS) {
    const float all = shared_sum[at / kQuads];
    const float factor = parts > 1 ? 1.0f : all > 0.0f ? 1.0f / all : 0.0f;
    const Offset place =
        (Offset(parts > 1 ? part : QueryRow()) * kHeads + FirstHead()) * kQuads + at;
    (parts > 1 ? partial : OUT_FLOAT4S(y))[place] = SumOfTeams(kTeams, at) * factor;
  }
  if (parts == 1) return;
  if (ME < kGroup) {
    partial[parts_in_all * kHeads * kQuads + part * kHeads + FirstHead() + ME] =
        make_float4(shared_sum[ME], shared_max[ME], 0.0f, 0.0f);
  }
  uint* counter = UINTS(counters) + QueryRow() * WORKGROUPS_Y + WORKGROUP_Y;
  if (ArrivesLast(counter, parts)) Merge(ARGS parts_in_all, parts);
}

__forceinline__ uint PartsOf(uint tiles) { return tiles > kFewTiles ? min(WORKGROUPS, tiles) : 1; }

__forceinline__ uint PartsBefore(ARGS_ int pos, int past) {
  return PartsOf(uint(past - FirstSeen(ARGS pos, past)) / kKeys + 1);
}

// Whether this part of a row has no tile, whichever keys FindKeys() finds: most parts of the
// longest cache have none, and of several rows they are many.
__forceinline__ bool HasNoTile(const Push& push) {
  const int slot = __ldcg(INTS(q_slot) + QueryRow()), pos = __ldcg(INTS(q_pos) + QueryRow());
  const bool valid = slot >= 0 && slot < int(kSlots);
  const int past = valid ? __ldcg(INTS(past) + slot) : 0;
  return WORKGROUP >= max(PartsBefore(ARGS pos, past), PartsBefore(ARGS pos, max(pos, past)));
}

// Asks for the cached rows of the first tile, before the wait. What says which ones they are was
// mostly written by the host; where a kernel of the step is yet to write it, some rows of the cache
// are asked for in vain. It is read past the first cache, which is not told of changes.
__forceinline__ void PrefetchTile(const Push& push) {
  constexpr uint kLine = 128;
  const int slot = __ldcg(INTS(q_slot)), pos = __ldcg(INTS(q_pos));
  if (slot < 0 || slot >= int(kSlots)) return;
  const int past = __ldcg(INTS(past) + slot);
  const int first = max(max(FirstOld(ARGS pos, past), past - int(kCapacity)), 0);
  if (first >= past) return;
  const uint parts = PartsOf(uint(past - first) / kKeys + 1);
  const int tile = first + int(WORKGROUP * kKeys);
  const uint key = ME / kSplit;
  if (WORKGROUP >= parts || tile + int(key) >= past) return;
  uint place = PlaceOf(tile) + key;
  ROLLED while (place >= kCapacity) place -= kCapacity;
  const uint key_bytes = CacheBytes(kKeyType, kDim), value_bytes = CacheBytes(kValueType, kDim);
  const Memory keys =
      RowsOf(slot, push.k_state, nullptr, kKeyType).cached + Offset(place) * (kKvHeads * key_bytes);
  const Memory values = RowsOf(slot, push.v_state, nullptr, kValueType).cached +
                        Offset(place) * (kKvHeads * value_bytes);
  ROLLED for (uint line = ME % kSplit * kLine; line < max(key_bytes, value_bytes);
              line += kSplit * kLine) {
    if (line < key_bytes) Prefetch(keys + line);
    if (line < value_bytes) Prefetch(values + line);
  }
}

// Of heads of usual lengths a multiprocessor runs two blocks.
#ifndef OPEN
#undef LEAST_BLOCKS
#define LEAST_BLOCKS 2
#endif
EARLY_KERNEL(attention_row) {
  const bool waits_first = kOneRow == 0 && HasNoTile(push);
  if (waits_first) {
    WAIT_FOR_INPUTS();
    if (HasNoTile(push)) return;
  }
  // The host wrote the records before the step.
  const uint words = sizeof(shared_heads) / 4;
  ROLLED for (uint i = ME; i < words; i += THREADS) {
    ((uint*)shared_heads)[i] = ((const uint*)push.transforms)[i];
  }
  BARRIER();
  ROLLED for (uint i = 0; i < kTransforms; ++i) {
    PrefetchAll(shared_heads[i].weight, kDim * 4);
    PrefetchAll(shared_heads[i].rates, shared_heads[i].half_rot * 8);
  }
  // Positions, which mostly the host wrote, are used before the wait and checked after it.
  Positions early;
  if (kOneRow != 0) {
    early = LoadPositions();
    PrefetchTile(push);
    FindTurns(early, nullptr);
  }
  if (!waits_first) WAIT_FOR_INPUTS();
  if (kOneRow == 0 && QueryRow() >= ROWS_OF(rows)) return;
  NEW_OWN;
  // All that is read first is on its way at the same time.
  const Item item = LoadItem();
  const Positions positions = LoadPositions();
  MINE(keys) = FindKeys(push);
  const int first = MINE(keys).first, past = MINE(keys).past;
  const uint tiles = uint(past - first) / kKeys + 1;
  const uint part = WORKGROUP, parts = PartsOf(tiles);
  if (part >= parts) return;
  int tile = first + int(part * kKeys);
  const int turn = int(parts * kKeys);
  // The last tile has the fresh key.
  const bool fresh = (tiles - 1) % parts == part;
  MINE(key_rows) = RowsOf(MINE(keys).slot, push.k_state, push.k_new, kKeyType);
  MINE(value_rows) = RowsOf(MINE(keys).slot, push.v_state, push.v_new, kValueType);
  MINE(has_key) = fresh && shared_heads[1].x != nullptr;
  MINE(has_value) = fresh && shared_heads[2].x != nullptr;
  LoadKeys(OWNED ARGS tile);
  LoadValues(OWNED ARGS tile);
  FindTurns(positions, kOneRow != 0 ? &early : nullptr);
  PrepareHeads(ARGS item, fresh);
  UNROLL for (uint i = 0; i < kGroup; ++i) MINE(acc)[i] = BROADCAST(0.0f);
  uint buffer_at = 0;
  ROLLED for (; tile <= past; tile += turn) {
    Scores(OWNED ARGS tile, buffer_at);
    if (tile + turn <= past) LoadKeys(OWNED ARGS tile + turn);
    BARRIER();
    Softmax(buffer_at);
    BARRIER();
    AddValues(OWNED tile, buffer_at);
    if (tile + turn <= past) LoadValues(OWNED ARGS tile + turn);
    buffer_at = kKeys * kGroup - buffer_at;
  }
  if (kOneRow == 0 && fresh && MINE(keys).has_more) {
    AddOthers(OWNED ARGS tile - turn + int(kKeys), buffer_at);
  }
  Finish(OWNED ARGS part, WORKGROUPS, parts);
}

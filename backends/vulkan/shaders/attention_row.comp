#version 460
// Attention of one row, or of each of several, over the old rows of its slot and the fresh ones. A
// workgroup takes a few query heads of a row, QueryRow(), that share a key/value head, and every
// `parts`-th tile of keys; the last one to be done joins the parts. Norms and rotations of the
// row's queries, key and value are computed on the way where the host left them out
// (HeadTransform). Keys and values are on their way before anything waits. Accumulates in f32.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#include "common.glsl"
#include "attention_row.args.glsl"
#include "math.kernel"
#include "visible.kernel"
#include "cache_words.kernel"
#include "lanes.kernel"
#include "arrival.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) CONSTANT Transforms {
  HeadTransform q, k, v;
};

const uint kThreads = gl_WorkGroupSize.x;
const uint kKeys = kThreads / kSplit;  // of a tile
const uint kQuads = kDim / 4;
const uint kLoads = (kQuads + kSplit - 1) / kSplit;  // of a key, by each invocation that shares it
const uint kTeamKeys = (kKeys + kTeams - 1) / kTeams;
const uint kMaxParts = 64;
// This many tiles one after another take less time than joining the sums of several workgroups.
const uint kFewTiles = 2;

// Queries, the fresh key and value, in the end the sums of teams. Floats as words: matvec_dot.comp
// has an array like it, which in a step of one dispatch is the same memory. As large as either is
// at most.
shared uvec4 shared_rows[(kThreads + 2 * kQuads) * kGroup];
shared float shared_p[2 * kKeys * kGroup];  // scores, then weights, of this tile and the one before
shared float shared_weight[kMaxParts * kGroup];
shared float shared_norm[kGroup + 2];
shared float shared_max[kGroup];
shared float shared_sum[kGroup];
shared float shared_factor[kGroup];

#ifdef SUBGROUPS
// A team works on an item of its own; its members share the work.
#define TEAM gl_SubgroupID
#define TEAMS gl_NumSubgroups
#define MEMBER gl_SubgroupInvocationID
#define MEMBERS gl_SubgroupSize
float MembersSum(float x) { return SumOfLanes(x, gl_SubgroupSize); }
float MembersMax(float x) { return MaxOfLanes(x, gl_SubgroupSize); }
#else
#define TEAM gl_LocalInvocationIndex
#define TEAMS gl_WorkGroupSize.x
#define MEMBER 0
#define MEMBERS 1
float MembersSum(float x) { return x; }
float MembersMax(float x) { return x; }
#endif

uint me;
uint kv_head;
uint first_head;
Transforms heads;

uint QueryRow() { return kOneRow != 0 ? 0 : GROUP.z; }

// ---- the row's own heads ------------------------------------------------------------------------

vec4 Row4(uint quad) { return uintBitsToFloat(shared_rows[quad]); }

// As many as this workgroup has: queries, then the key and the value.
HeadTransform HeadsOf(uint item) {
  if (item < kGroup) return heads.q;
  if (item == kGroup) return heads.k;
  return heads.v;
}
uvec2 PlaceOf(uint item, const HeadTransform h) {
  const uint row_heads = item < kGroup ? kHeads : kKvHeads;
  const uint head = item < kGroup ? first_head + item : kv_head;
  return AdvanceBy(h.x, QueryRow() * row_heads + head, kDim * 4);
}

void FindNorms(uint items) {
  for (uint item = TEAM; item < items; item += TEAMS) {
    const HeadTransform h = HeadsOf(item);
    float squares = 0.0;
    if (!IsNull(h.x) && h.eps >= 0.0) {
      const uvec2 place = PlaceOf(item, h);
      for (uint quad = MEMBER; quad < kQuads; quad += MEMBERS) {
        const vec4 x = F32x4(place).v[quad];
        squares += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
      }
    }
    squares = MembersSum(squares);
    if (MEMBER == 0) {
      shared_norm[item] = h.eps < 0.0 ? 1.0 : 1.0 / sqrt(squares / float(kDim) + h.eps);
    }
  }
}

// Rounds new keys and values to the type of the cache, which is f32 or f16 for both where heads are
// transformed. One workgroup of a head stores them for other readers.
float Kept(uint item, uint i, float value) {
  if (item < kGroup) return value;
  const uint bits = kKeyType == kF32 ? 0 : FloatToHalf(value);
  if (first_head % (kHeads / kKvHeads) == 0) {
    const uvec2 fresh = item == kGroup ? p.k_new : p.v_new;
    const uint to = kv_head * kDim + i;
    if (kKeyType == kF32) {
      F32(fresh).v[to] = value;
    } else {
      U16(fresh).v[to] = uint16_t(bits);
    }
  }
  return kKeyType == kF32 ? value : HalfToFloat(bits);
}

void PutElement(uint item, uint i, float value) {
  const uint at = item * kDim + i;
  shared_rows[at / 4][at & 3] = floatBitsToUint(Kept(item, i, value));
}

// Two elements of an item: a pair that turns, or two of the rest.
void Rotate(uint item, uint pair) {
  const HeadTransform h = HeadsOf(item);
  if (IsNull(h.x)) return;
  const bool turns = pair < h.half_rot;
  const uint i = turns ? pair : 2 * pair, j = turns ? pair + h.half_rot : i + 1;
  const uvec2 place = PlaceOf(item, h);
  float a = F32(place).v[i] * shared_norm[item], b = F32(place).v[j] * shared_norm[item];
  if (!IsNull(h.weight)) {
    a *= F32(h.weight).v[i];
    b *= F32(h.weight).v[j];
  }
  vec2 turn = vec2(1.0, 0.0);
  if (turns) {
    const uvec2 rate = U32x2(h.rates).v[pair];
    turn = CosSin(Turns(uint(I32(h.pos).v[QueryRow()]), rate));
  }
  const vec2 turned = Turned(a, b, turn);
  PutElement(item, i, turned.x);
  PutElement(item, j, turned.y);
}

void PrepareHeads(bool fresh) {
  const uint items = fresh ? kGroup + 2 : kGroup;
  FindNorms(items);
  barrier();
  for (uint i = me; i < items * (kDim / 2); i += kThreads) Rotate(i / (kDim / 2), i % (kDim / 2));
  if (me < kGroup) {
    shared_max[me] = -kInfinity;
    shared_sum[me] = 0.0;
  }
  barrier();
}

// ---- keys and values ----------------------------------------------------------------------------

// The keys the row may see have numbers from `first` to `past`, which is the first fresh one of the
// slot; those of all fresh rows follow it, for steps in which a slot has several. The row is at
// `pos` and sees keys up to `last`.
//
// Where the fresh rows of the slot follow one another up to the row's own, their numbers are their
// positions: those from `stored` on are read from them as if the cache had them, and number `past`
// is the row's own. So a row gives the same bytes in a step with the rows before it and after them.
int first, past, pos, last, slot;
int stored;     // the number of cached keys
int fresh_row;  // which has number `past`
bool sees_fresh, has_more;

bool Reaches(int key_pos) { return SeesFresh(pos, last, key_pos); }

uint FreshRows() { return p.fresh != 0 ? p.fresh : Step(p.step).t; }

bool IsOther(int row) {
  return row < int(FreshRows()) && row != fresh_row && I32(p.kv_slot).v[row] == slot;
}

bool Sees(int at) {
  if (at < past) return Reaches(at);
  if (at == past) return sees_fresh;
  return has_more && IsOther(at - past - 1) && Reaches(I32(p.kv_pos).v[at - past - 1]);
}

// The first fresh row of the slot, and whether there is another.
void FindFreshRow() {
  const int rows = int(FreshRows());
  int found = -1;
  has_more = false;
  for (int row = rows - 1; row >= 0; --row) {
    if (I32(p.kv_slot).v[row] != slot) continue;
    has_more = found >= 0;
    found = row;
  }
  fresh_row = max(found, 0);
  sees_fresh = found >= 0;
}

// The fresh row of the slot at position `pos` if the rows before it hold the positions before; or
// -1.
int OwnRow() {
  const int rows = int(FreshRows());
  int own = -1;
  for (int row = 0; row < rows; ++row) {
    if (I32(p.kv_slot).v[row] == slot && I32(p.kv_pos).v[row] == pos) own = row;
  }
  if (own < pos - stored) return -1;
  for (int i = 1; i <= pos - stored; ++i) {
    if (I32(p.kv_slot).v[own - i] != slot || I32(p.kv_pos).v[own - i] != pos - i) return -1;
  }
  return own;
}

// The row sees nothing after its own key.
void JoinFreshRows() {
  if (kCanvas != 0 || last != pos || pos < stored) return;
  const int own = OwnRow();
  if (own < 0) return;
  fresh_row = own;
  past = pos;
  has_more = false;
}

void FindKeys() {
  const uint row = QueryRow();
  slot = I32(p.q_slot).v[row];
  pos = I32(p.q_pos).v[row];
  last = IsNull(heads.q.last) ? pos : I32(heads.q.last).v[row];
  const int only_past = I32(p.past).v[0];
  // All that a plan of one row reads is on its way at the same time.
  const int first_slot = I32(p.kv_slot).v[0], first_pos = I32(p.kv_pos).v[0];
  const bool valid = slot >= 0 && slot < int(kSlots);
  past = !valid ? 0 : kSlots == 1 ? only_past : I32(p.past).v[slot];
  stored = past;
  if (kOneRow != 0) {
    fresh_row = 0;
    sees_fresh = first_slot == slot;
    has_more = false;
  } else {
    FindFreshRow();
    if (valid) JoinFreshRows();
  }
  first = FirstOld(pos, past);
  first = max(first, max(past - int(kCapacity), 0));
  first = min(first, past);
  const int fresh_pos = kOneRow != 0 ? first_pos : I32(p.kv_pos).v[fresh_row];
  sees_fresh = valid && sees_fresh && Reaches(fresh_pos);
  has_more = valid && has_more;
}

// Four elements of the key or value of a number, as they lie in memory.
uvec4 LoadQuad(uvec2 state, uvec2 fresh, int at, uint quad, uint type) {
  // Rows before the query's own hold earlier keys; rows after it are in the order of the step.
  const uint new_row = kOneRow != 0 ? 0
                       : at <= past ? uint(fresh_row - (past - at))
                                    : uint(at - past - 1);
  const uint row = at >= stored ? new_row : uint(slot) * kCapacity + uint(at) % kCapacity;
  const uvec2 base = at >= stored ? fresh : state;
  const uint head = row * kKvHeads + kv_head, from = head * kQuads + quad;
  if (type == kF32) return U32x4(base).v[from];
  if (type == kF16 || type == kBF16) return uvec4(U32x2(base).v[from], 0, 0);
  return AskForFour(AdvanceBy(base, head, CacheBytes(type, kDim)), quad * 4, type);
}
vec4 QuadOf(uvec4 words, uint quad, uint type) {
  if (type == kF32) return uintBitsToFloat(words);
  if (type == kF16) return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
  if (type == kBF16) {
    return uintBitsToFloat(
        uvec4(words.x << 16, words.x & ~0xFFFFu, words.y << 16, words.y & ~0xFFFFu));
  }
  return TakeFour(words, quad * 4, type);
}

uvec4 k_words[kLoads];
uvec4 v_words[kTeamKeys];
bool has_key, has_value;  // in shared memory: the fresh ones

void LoadKeys(int tile) {
  const int at = tile + int(me / kSplit);
  const bool wanted = Sees(at) && !(has_key && at == past);
  const uvec2 state = p.k_state, fresh = p.k_new;
  [[unroll]] for (uint b = 0; b < kLoads; ++b) {
    const uint quad = min(me % kSplit + b * kSplit, kQuads - 1);
    k_words[b] = wanted ? LoadQuad(state, fresh, at, quad, kKeyType) : uvec4(0);
  }
}

void LoadValues(int tile) {
  const uint team = me / kQuads;
  const uvec2 state = p.v_state, fresh = p.v_new;
  [[unroll]] for (uint t = 0; t < kTeamKeys; ++t) {
    const uint key = team * kTeamKeys + t;
    const int at = tile + int(key);
    // Rows that the query does not see may hold anything.
    const bool wanted = team < kTeams && key < kKeys && Sees(at) && !(has_value && at == past);
    v_words[t] = wanted ? LoadQuad(state, fresh, at, me % kQuads, kValueType) : uvec4(0);
  }
}

// ---- one tile -----------------------------------------------------------------------------------

vec4 acc[kGroup];

void Scores(int tile, uint buffer_at) {
  const uint key = me / kSplit, part = me % kSplit;
  const int at = tile + int(key);
  const bool is_fresh = has_key && at == past;
  float sum[kGroup];
  [[unroll]] for (uint i = 0; i < kGroup; ++i) sum[i] = 0.0;
  [[unroll]] for (uint b = 0; b < kLoads; ++b) {
    const uint quad = part + b * kSplit;
    if (quad >= kQuads) continue;
    const vec4 k = is_fresh ? Row4(kGroup * kQuads + quad) : QuadOf(k_words[b], quad, kKeyType);
    [[unroll]] for (uint i = 0; i < kGroup; ++i) sum[i] += dot(k, Row4(i * kQuads + quad));
  }
  [[unroll]] for (uint i = 0; i < kGroup; ++i) {
    const float score = SumOfLanes(sum[i], kSplit) * kScale;
    if (part == i % kSplit) shared_p[buffer_at + i * kKeys + key] = Sees(at) ? score : -kInfinity;
  }
}

// Scores to weights, with a running maximum.
void Softmax(uint buffer_at) {
  for (uint i = TEAM; i < kGroup; i += TEAMS) {
    const float old = shared_max[i];
    float most = old;
    for (uint key = MEMBER; key < kKeys; key += MEMBERS) {
      most = max(most, shared_p[buffer_at + i * kKeys + key]);
    }
    most = MembersMax(most);
    float sum = 0.0;
    for (uint key = MEMBER; key < kKeys; key += MEMBERS) {
      const float score = shared_p[buffer_at + i * kKeys + key];
      const float weight = score == -kInfinity ? 0.0 : Exp(score - most);
      shared_p[buffer_at + i * kKeys + key] = weight;
      sum += weight;
    }
    sum = MembersSum(sum);
    if (MEMBER == 0) {
      const float factor = old == -kInfinity ? 0.0 : Exp(old - most);
      shared_factor[i] = factor;
      shared_max[i] = most;
      shared_sum[i] = shared_sum[i] * factor + sum;
    }
  }
}

void AddValues(int tile, uint buffer_at) {
  const uint team = me / kQuads;
  [[unroll]] for (uint i = 0; i < kGroup; ++i) acc[i] *= shared_factor[i];
  if (team >= kTeams) return;
  [[unroll]] for (uint t = 0; t < kTeamKeys; ++t) {
    const uint key = team * kTeamKeys + t;
    if (key >= kKeys) continue;
    const bool is_fresh = has_value && tile + int(key) == past;
    const vec4 v = is_fresh ? Row4((kGroup + 1) * kQuads + me % kQuads)
                            : QuadOf(v_words[t], me % kQuads, kValueType);
    [[unroll]] for (uint i = 0; i < kGroup; ++i) {
      acc[i] += shared_p[buffer_at + i * kKeys + key] * v;
    }
  }
}

// ---- the end ------------------------------------------------------------------------------------

// Sums over teams, each of which put a sum for every quad of the group's heads into shared memory.
vec4 SumOfTeams(uint teams, uint output_at) {
  vec4 sum = vec4(0);
  for (uint team = 0; team < teams; ++team) sum += Row4(team * kGroup * kQuads + output_at);
  return sum;
}

void PutSum(uint at, vec4 sum) { shared_rows[at] = floatBitsToUint(sum); }

// Weights of the parts' sums: y = sum w_i acc_i with w_i = exp(max_i - max) / sum_j exp(max_j -
// max) sum_j.
void WeighParts(Shared stats, uint parts) {
  for (uint i = TEAM; i < kGroup; i += TEAMS) {
    float most = -kInfinity;
    for (uint part = MEMBER; part < parts; part += MEMBERS) {
      most = max(most, stats.v[part * kHeads + first_head + i].y);
    }
    most = MembersMax(most);
    float sum = 0.0;
    for (uint part = MEMBER; part < parts; part += MEMBERS) {
      const vec4 stat = stats.v[part * kHeads + first_head + i];
      const float weight = stat.y == -kInfinity ? 0.0 : Exp(stat.y - most);
      shared_weight[i * kMaxParts + part] = weight;
      sum += weight * stat.x;
    }
    sum = MembersSum(sum);
    if (MEMBER == 0) shared_factor[i] = sum > 0.0 ? 1.0 / sum : 0.0;
  }
}

// The sums of the parts of this row.
uvec2 PartialOf(uint parts_in_all) {
  return AdvanceBy(p.partial, QueryRow() * parts_in_all * kHeads, (kDim + 4) * 4);
}

void Merge(uint parts_in_all, uint parts) {
  const uint kAhead = 4;  // sums on their way at a time
  const uvec2 partial = PartialOf(parts_in_all);
  Shared sums = Shared(partial);
  WeighParts(Shared(AdvanceBy(partial, parts_in_all * kHeads, kDim * 4)), parts);
  barrier();
  const uint outputs = kGroup * kQuads;
  const uint teams = max(kThreads / outputs, 1);
  for (uint at = me; at < teams * outputs; at += kThreads) {
    const uint output_at = at % outputs;
    const uint head = output_at / kQuads;
    vec4 sum = vec4(0);
    for (uint first_part = at / outputs; first_part < parts; first_part += teams * kAhead) {
      vec4 values[kAhead];
      [[unroll]] for (uint i = 0; i < kAhead; ++i) {
        const uint part = min(first_part + i * teams, parts - 1);
        values[i] = sums.v[(part * kHeads + first_head) * kQuads + output_at];
      }
      [[unroll]] for (uint i = 0; i < kAhead; ++i) {
        const uint part = first_part + i * teams;
        const float weight = shared_weight[head * kMaxParts + min(part, parts - 1)];
        sum += (part < parts ? weight : 0.0) * values[i];
      }
    }
    PutSum(at, sum);
  }
  barrier();
  for (uint at = me; at < outputs; at += kThreads) {
    Shared(p.y).v[(QueryRow() * kHeads + first_head) * kQuads + at] =
        SumOfTeams(teams, at) * shared_factor[at / kQuads];
  }
}

// The other fresh rows of the slot, of which the last tile had some.
void AddOthers(int tile, uint buffer_at) {
  const int end = past + 1 + int(FreshRows());
  for (; tile < end; tile += int(kKeys)) {
    LoadKeys(tile);
    LoadValues(tile);
    Scores(tile, buffer_at);
    barrier();
    Softmax(buffer_at);
    barrier();
    AddValues(tile, buffer_at);
    buffer_at = kKeys * kGroup - buffer_at;
  }
}

void Finish(uint part, uint parts_in_all, uint parts) {
  const uvec2 partial = PartialOf(parts_in_all);
  barrier();
  const uint team = me / kQuads;
  if (team < kTeams) {
    [[unroll]] for (uint i = 0; i < kGroup; ++i) {
      PutSum((team * kGroup + i) * kQuads + me % kQuads, acc[i]);
    }
  }
  barrier();
  for (uint at = me; at < kGroup * kQuads; at += kThreads) {
    const float all = shared_sum[at / kQuads];
    const float factor = parts > 1 ? 1.0 : all > 0.0 ? 1.0 / all : 0.0;
    const uint place = ((parts > 1 ? part : QueryRow()) * kHeads + first_head) * kQuads + at;
    Shared(parts > 1 ? partial : p.y).v[place] = SumOfTeams(kTeams, at) * factor;
  }
  if (parts > 1) {
    if (me < kGroup) {
      Shared stats = Shared(AdvanceBy(partial, parts_in_all * kHeads, kDim * 4));
      stats.v[part * kHeads + first_head + me] = vec4(shared_sum[me], shared_max[me], 0.0, 0.0);
    }
    if (ArrivesLast(Advance(p.counters, (QueryRow() * GROUPS.y + GROUP.y) * 4), parts))
      Merge(parts_in_all, parts);
  }
}

void main() {
  if (kOneRow == 0 && GROUP.z >= At(p.rows, Step(p.step))) return;
  me = Index();
  first_head = GROUP.y * kGroup;
  kv_head = first_head / (kHeads / kKvHeads);
  heads = Transforms(p.transforms);
  FindKeys();
  const uint tiles = uint(past - first) / kKeys + 1;
  const uint part = GROUP.x, parts = tiles > kFewTiles ? min(GROUPS.x, tiles) : 1;
  if (part >= parts) return;
  int tile = first + int(part * kKeys);
  const int turn = int(parts * kKeys);
  // The last tile has the fresh key.
  const bool fresh = (tiles - 1) % parts == part;
  has_key = fresh && !IsNull(heads.k.x);
  has_value = fresh && !IsNull(heads.v.x);
  LoadKeys(tile);
  LoadValues(tile);
  PrepareHeads(fresh);
  [[unroll]] for (uint i = 0; i < kGroup; ++i) acc[i] = vec4(0);
  uint buffer_at = 0;
  for (; tile <= past; tile += turn) {
    Scores(tile, buffer_at);
    if (tile + turn <= past) LoadKeys(tile + turn);
    barrier();
    Softmax(buffer_at);
    barrier();
    AddValues(tile, buffer_at);
    if (tile + turn <= past) LoadValues(tile + turn);
    buffer_at = kKeys * kGroup - buffer_at;
  }
  if (kOneRow == 0 && fresh && has_more) AddOthers(tile - turn + int(kKeys), buffer_at);
  Finish(part, GROUPS.x, parts);
}

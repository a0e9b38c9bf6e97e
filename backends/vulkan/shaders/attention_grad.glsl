// Tiles of scores for the derivatives of attention over fresh rows. A workgroup has rows of its own
// and goes through others in tiles: in attention_grad_q its own are pairs of a query row and a head
// and the others are keys, in attention_grad_kv it is the other way round. An invocation computes a
// block of scores; rows come through shared memory a few dimensions at a time.
//
// The includer defines kOwn, a multiple of 8, the matrices OTHER_1 and OWN_1, whose products are
// the scores, OTHER_2 and OWN_2, whose products are the gradients of the probabilities, and the
// functions that are declared here.
#include "fresh_keys.glsl"

const uint kTile = 64;            // others
const uint kRows = kTile + kOwn;  // the others first
const uint kDepth = 4;            // vectors of dimensions
const uint kPitch = kDepth + 1;   // rows begin in different banks
// The block of an invocation, whose rows are far from each other.
const uint kOtherSide = 4, kOwnSide = kOwn >= 32 ? 2 : 1;
const uint kOtherStep = kTile / kOtherSide, kOwnStep = kOwn / kOwnSide;
const uint kBlocks = kOtherStep * kOwnStep;
const uint kTurns = (kBlocks + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
const uint kScores = kTurns * kOtherSide * kOwnSide;  // of an invocation
const uint kOwnQuads = kOwn / 4;
// Sums of an invocation: four dimensions of eight of its own rows.
const uint kSumRows = 8;
const uint kSumUnits = kQuads * (kOwn / kSumRows);
const uint kSumTurns = (kSumUnits + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;

shared vec4 shared_rows[2 * kRows * kPitch];
shared uint shared_first, shared_end;  // of the others that one of its own may see

uint me;

// The vector at which an own row begins in its matrices, and one of the tile.
uint OwnAt(uint own);
uint OtherAt(uint other);
// Loads what else belongs to the rows of the tile, for StoreScore().
void LoadFacts();
// Takes the products of a row of the tile and an own one.
void StoreScore(uint other, uint own, float score, float product);

void LoadRows(uint first) {
  for (uint i = me; i < 2 * kRows * kDepth; i += gl_WorkGroupSize.x) {
    const uint row = i / kDepth % kRows, quad = first + i % kDepth;
    const bool second = i >= kRows * kDepth;
    vec4 x = vec4(0.0);
    if (quad < kQuads) {
      const uvec2 other = second ? OTHER_2 : OTHER_1, own = second ? OWN_2 : OWN_1;
      const uint at = row < kTile ? OtherAt(row) : OwnAt(row - kTile);
      x = F32x4(row < kTile ? other : own).v[at + quad];
    }
    shared_rows[i / kDepth * kPitch + i % kDepth] = x;
  }
}

float AddProduct(vec4 a, vec4 b, float sum) {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// Products of the first and of the second matrices.
float sums[2 * kScores];

// Adds the products of one block, of the dimensions in shared memory.
void AddProducts(uint matrix, uint block, uint turn) {
  const uint other = matrix * kRows + block / kOwnStep;
  const uint own = matrix * kRows + kTile + block % kOwnStep;
  [[unroll]] for (uint d = 0; d < kDepth; ++d) {
    vec4 b[kOwnSide];
    [[unroll]] for (uint j = 0; j < kOwnSide; ++j) {
      b[j] = shared_rows[(own + j * kOwnStep) * kPitch + d];
    }
    [[unroll]] for (uint i = 0; i < kOtherSide; ++i) {
      const vec4 a = shared_rows[(other + i * kOtherStep) * kPitch + d];
      [[unroll]] for (uint j = 0; j < kOwnSide; ++j) {
        const uint at = matrix * kScores + (turn * kOtherSide + i) * kOwnSide + j;
        sums[at] = AddProduct(a, b[j], sums[at]);
      }
    }
  }
}

// The scores of a tile and their gradients, to StoreScore(). Begins with a barrier.
void ComputeScores() {
  [[unroll]] for (uint i = 0; i < 2 * kScores; ++i) sums[i] = 0.0;
  for (uint first = 0; first < kQuads; first += kDepth) {
    barrier();
    if (first == 0) LoadFacts();
    LoadRows(first);
    barrier();
    [[unroll]] for (uint turn = 0; turn < kTurns; ++turn) {
      const uint block = min(me + turn * gl_WorkGroupSize.x, kBlocks - 1);
      AddProducts(0, block, turn);
      AddProducts(1, block, turn);
    }
  }
  [[unroll]] for (uint turn = 0; turn < kTurns; ++turn) {
    const uint block = me + turn * gl_WorkGroupSize.x;
    if (block >= kBlocks) continue;
    [[unroll]] for (uint i = 0; i < kOtherSide; ++i) {
      [[unroll]] for (uint j = 0; j < kOwnSide; ++j) {
        const uint at = (turn * kOtherSide + i) * kOwnSide + j;
        StoreScore(block / kOwnStep + i * kOtherStep, block % kOwnStep + j * kOwnStep, sums[at],
                   sums[kScores + at]);
      }
    }
  }
}

// The slots and positions of rows, at the least and at the most.
struct Bounds {
  int first_slot, last_slot, first_pos, last_pos;
};
Bounds NoRows() { return Bounds(0x7FFFFFFF, -1, 0x7FFFFFFF, -1); }
void Include(int pos, int slot, inout Bounds bounds) {
  if (slot < 0) return;
  bounds.first_slot = min(bounds.first_slot, slot);
  bounds.last_slot = max(bounds.last_slot, slot);
  bounds.first_pos = min(bounds.first_pos, pos);
  bounds.last_pos = max(bounds.last_pos, pos);
}
// False only if no query in `queries` sees a key in `keys`.
bool MaySee(const Bounds queries, const Bounds keys) {
  if (queries.first_slot > keys.last_slot || keys.first_slot > queries.last_slot) return false;
  if (kCanvas != 0) return true;
  return keys.first_pos <= queries.last_pos &&
         (kWindow == 0 || queries.first_pos - keys.last_pos < kWindow);
}

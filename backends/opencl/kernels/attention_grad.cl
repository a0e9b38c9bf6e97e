// Tiles of scores for the derivatives of attention over fresh rows. A work-group has rows of its
// own and goes through others in tiles: in attention_grad_q its own are pairs of a query row and a
// head and the others are keys, in attention_grad_kv it is the other way round. A work-item
// computes a block of scores; rows come through local memory a few dimensions at a time.
//
// The includer defines kOwn, a multiple of 8.
#include "fresh_keys.cl"

#define kTile 64              // others
#define kRows (kTile + kOwn)  // the others first
#define kDepth 4              // vectors of dimensions
#define kPitch (kDepth + 1)   // rows begin in different banks
// The block of a work-item, whose rows are far from each other.
#define kOtherSide 4
#define kOwnSide (kOwn >= 32 ? 2 : 1)
#define kOtherStep (kTile / kOtherSide)
#define kOwnStep (kOwn / kOwnSide)
#define kBlocks (kOtherStep * kOwnStep)
#define kTurns ((kBlocks + THREADS - 1) / THREADS)
#define kScores (kTurns * kOtherSide * kOwnSide)  // of a work-item
#define kOwnQuads (kOwn / 4)
// A work-item of a CPU has many blocks and sums: their loops stay loops.
#ifdef CPU
#define UNROLL_TURNS
#else
#define UNROLL_TURNS UNROLL
#endif
// Sums of a work-item: four dimensions of eight of its own rows.
#define kSumRows 8
#define kSumUnits (kQuads * (kOwn / kSumRows))
#define kSumTurns ((kSumUnits + THREADS - 1) / THREADS)

// Rows a few dimensions at a time, and the others that an own one may see.
typedef struct {
  float4 rows[2 * kRows * kPitch];
  uint first, end;
} Staged;

// Adds the products of one block, of the dimensions in local memory.
INLINED void AddProducts(uint matrix, uint block, uint turn, __local const Staged* s, float* sums) {
  const uint other = matrix * kRows + block / kOwnStep;
  const uint own = matrix * kRows + kTile + block % kOwnStep;
  UNROLL
  for (uint d = 0; d < kDepth; ++d) {
    UNROLL
    for (uint i = 0; i < kOtherSide; ++i) {
      const float4 a = s->rows[(other + i * kOtherStep) * kPitch + d];
      UNROLL
      for (uint j = 0; j < kOwnSide; ++j) {
        const float4 b = s->rows[(own + j * kOwnStep) * kPitch + d];
        const uint at = matrix * kScores + (turn * kOtherSide + i) * kOwnSide + j;
        sums[at] = fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sums[at]))));
      }
    }
  }
}

// Adds the products of all blocks of a work-item, of the dimensions in local memory.
INLINED void AddAllProducts(__local const Staged* s, float* sums) {
  for (uint turn = 0; turn < kTurns; ++turn) {
    const uint block = min(ME + turn * THREADS, (uint)kBlocks - 1);
    AddProducts(0, block, turn, s, sums);
    AddProducts(1, block, turn, s, sums);
  }
}

// The slots and positions of rows, at the least and at the most.
typedef struct {
  int first_slot, last_slot, first_pos, last_pos;
} Bounds;
Bounds Include(int pos, int slot, Bounds bounds) {
  if (slot < 0) return bounds;
  const Bounds both = {min(bounds.first_slot, slot), max(bounds.last_slot, slot),
                       min(bounds.first_pos, pos), max(bounds.last_pos, pos)};
  return both;
}
Bounds NoRows() {
  const Bounds none = {INT_MAX, -1, INT_MAX, -1};
  return none;
}
// False only if no query in `queries` sees a key in `keys`.
bool MaySee(Bounds queries, Bounds keys) {
  if (queries.first_slot > keys.last_slot || keys.first_slot > queries.last_slot) return false;
  if (kCanvas != 0) return true;
  if (kWindow != 0 && queries.first_pos - keys.last_pos >= kWindow) return false;
  return keys.first_pos <= queries.last_pos;
}

#version 460
// Products of f32 matrices of any layout. A workgroup computes a tile of 32 x 32 results, in blocks
// of 4 x 4; terms come through shared memory, 16 at a time, and are added in their order. The
// workgroups of a GROUP.y share the terms with the others and have results of their own,
// y[GROUP.y].
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul_plain.args.glsl"

const uint kTile = 32, kDepth = 16, kSide = 4;
const uint kBlocks = kTile / kSide;  // along a side of the tile
// Blocks of an invocation; some may have none.
const uint kOwn = (kBlocks * kBlocks + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;

// The places of a term, four in a vector, begin in other banks than those of the next term.
const uint kPitch = kTile / 4 + 1;
shared vec4 shared_a[kDepth * kPitch];
shared vec4 shared_b[kDepth * kPitch];

// Neighbours in memory go to neighbouring invocations: along the terms if their stride is 1.
uint TermOf(uint element, uint stride) { return stride == 1 ? element % kDepth : element / kTile; }
uint PlaceOf(uint element, uint stride) { return stride == 1 ? element / kDepth : element % kTile; }

// The sums of terms `begin` to `end`, for the part of y that follows `skipped` results.
void Tile(uint first_row, uint first_column, uint rows, uint begin, uint end, uint skipped) {
  const uint me = gl_LocalInvocationID.x;
  vec4 sums[kOwn * kSide];  // a vector for each row of a block
  for (uint i = 0; i < kOwn * kSide; ++i) sums[i] = vec4(0.0);
  for (uint first = begin; first < end; first += kDepth) {
    barrier();
    for (uint i = me; i < kDepth * kTile; i += gl_WorkGroupSize.x) {
      const uint a_term = TermOf(i, p.a_term), a_row = PlaceOf(i, p.a_term);
      const bool in_a = first + a_term < end && first_row + a_row < rows;
      shared_a[a_term * kPitch + a_row / 4][a_row % 4] =
          in_a ? F32(p.a).v[(first_row + a_row) * p.a_row + (first + a_term) * p.a_term] : 0.0;
      const uint b_term = TermOf(i, p.b_term), b_column = PlaceOf(i, p.b_term);
      const bool in_b = first + b_term < end && first_column + b_column < p.columns;
      shared_b[b_term * kPitch + b_column / 4][b_column % 4] =
          in_b ? F32(p.b).v[(first + b_term) * p.b_term + (first_column + b_column) * p.b_column]
               : 0.0;
    }
    barrier();
    for (uint own = 0; own < kOwn; ++own) {
      const uint block = min(me + own * gl_WorkGroupSize.x, kBlocks * kBlocks - 1);
      for (uint term = 0; term < kDepth; ++term) {
        const vec4 a = shared_a[term * kPitch + block / kBlocks];
        const vec4 b = shared_b[term * kPitch + block % kBlocks];
        [[unroll]] for (uint i = 0; i < kSide; ++i) {
          sums[own * kSide + i] = fma(vec4(a[i]), b, sums[own * kSide + i]);
        }
      }
    }
  }
  for (uint own = 0; own < kOwn; ++own) {
    const uint block = me + own * gl_WorkGroupSize.x;
    for (uint i = 0; i < kSide; ++i) {
      for (uint j = 0; j < kSide; ++j) {
        const uint row = first_row + block / kBlocks * kSide + i;
        const uint column = first_column + block % kBlocks * kSide + j;
        if (block >= kBlocks * kBlocks || row >= rows || column >= p.columns) continue;
        const uint at = skipped + row * p.columns + column;
        const float sum = p.factor * sums[own * kSide + i][j];
        F32(p.y).v[at] = kAdds != 0 ? F32(p.y).v[at] + sum : sum;
      }
    }
  }
}

void main() {
  const uint rows = At(p.rows, Step(p.step)), terms = At(p.terms, Step(p.step));
  const uint across = (p.columns + kTile - 1) / kTile;
  const uint tiles = (rows + kTile - 1) / kTile * across;
  const uint share = ((terms + kDepth - 1) / kDepth + GROUPS.y - 1) / GROUPS.y * kDepth;
  const uint begin = min(GROUP.y * share, terms), end = min(begin + share, terms);
  const uint skipped = GROUP.y * rows * p.columns;
  for (uint tile = GROUP.x; tile < tiles; tile += GROUPS.x) {
    Tile(tile / across * kTile, tile % across * kTile, rows, begin, end, skipped);
  }
}

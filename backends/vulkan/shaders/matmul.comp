#version 460
// Products of many rows with a matrix of weights: tiles of kTile rows and 64 results in shared
// memory, 4 x 4 results for each invocation. Works everywhere; accumulates in f32. Workgroups in z
// sum a part of the terms each; sum_parts.kernel adds their sums.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul.args.glsl"
#include "math.kernel"
#include "weights.glsl"
#include "matvec.glsl"

const uint kResults = 64;
const uint kSide = 4;
// Tiles of x and of the weights, term by term, with four rows or results in a vector. Odd pitches
// let the banks of terms differ.
const uint kPitchX = kTile / kSide + 1, kPitchW = kResults / kSide + 1;
const uint kThreads = gl_WorkGroupSize.x;  // 4 * kTile
shared vec4 shared_x[32 * kPitchX];
shared vec4 shared_w[(kGlu + 1) * 32 * kPitchW];
shared int shared_row[kTile];  // of x, -1 beyond the end
shared int shared_pair[kTile];

#include "tile_rows.glsl"

// Four values of x from `column` on, 0 beyond the end of its row.
vec4 LoadFour(uvec2 row, uint column) {
  if (kChecked == 0) return F32x4(Advance(row, column * 4)).v[0];
  vec4 values = vec4(0.0);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (column + i < p.k) values[i] = F32(row).v[column + i];
  }
  return values;
}

void LoadX(uint chunk) {
  const uvec2 at = ChunkAt(chunk);
  // Each invocation takes four columns of each half of a row.
  const uint row = gl_LocalInvocationIndex >> 2;
  const uint first = (gl_LocalInvocationIndex & 3) * 4;
  const int source = shared_row[row];
  const uvec2 base = AdvanceBy(p.x, uint(max(source, 0)), p.k * 4);
  [[unroll]] for (uint part = 0; part < 2; ++part) {
    const vec4 values = source < 0 ? vec4(0.0) : LoadFour(base, at[part] + first);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      shared_x[(part * 16 + first + i) * kPitchX + row / kSide][row % kSide] = values[i];
    }
  }
}

void LoadWeights(uint chunk, uint first_row, uint first_weight_row) {
  for (uint at = gl_LocalInvocationIndex; at < (kGlu + 1) * kResults; at += kThreads) {
    const uint half_glu = at / kResults, row = at % kResults;
    const uvec2 weight = half_glu == 0 ? p.weight : p.weight2;
    const uint weight_row = first_weight_row + min(first_row + row, p.n - 1);
    const Chunk c = Decode(WeightRow(AdvanceBy(weight, weight_row, p.stride), p.blocks), chunk);
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      shared_w[(half_glu * 32 + i) * kPitchW + row / kSide][row % kSide] = ValueAt(c, i);
    }
  }
}

// The sums of an invocation, a vector for each row.
struct Block {
  vec4 row[kSide];
};
Block NoSums() { return Block(vec4[kSide](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0))); }
void AddTerm(inout Block sum, vec4 x, vec4 w) {
  [[unroll]] for (uint a = 0; a < kSide; ++a) sum.row[a] = fma(vec4(x[a]), w, sum.row[a]);
}

void main() {
  const uint first_row = GROUP.x * kResults;
  const uint chunks = kBlock == 1 ? (p.k + 31) / 32 : p.blocks * kBlock / 32;
  const uint tx = gl_LocalInvocationIndex & 15, ty = gl_LocalInvocationIndex >> 4;
  uint first_weight_row;
  if (!FindRows(GROUP.y, first_weight_row)) return;
  const uint share = (chunks + GROUPS.z - 1) / GROUPS.z;
  const uint begin = GROUP.z * share, end = min(begin + share, chunks);
  const uvec2 results = AdvanceBy(p.y, GROUP.z * At(p.rows, Step(p.step)), p.n * 4);
  Block acc = NoSums(), acc_up = NoSums();
  for (uint chunk = begin; chunk < end; ++chunk) {
    barrier();
    LoadX(chunk);
    LoadWeights(chunk, first_row, first_weight_row);
    barrier();
    // Sums of sums of 32 terms round less than sums of all.
    Block sum = NoSums(), sum_up = NoSums();
    for (uint i = 0; i < 32; ++i) {
      const vec4 x = shared_x[i * kPitchX + ty];
      AddTerm(sum, x, shared_w[i * kPitchW + tx]);
      if (kGlu != 0) AddTerm(sum_up, x, shared_w[(32 + i) * kPitchW + tx]);
    }
    [[unroll]] for (uint a = 0; a < kSide; ++a) {
      acc.row[a] += sum.row[a];
      if (kGlu != 0) acc_up.row[a] += sum_up.row[a];
    }
  }
  [[unroll]] for (uint a = 0; a < kSide; ++a) {
    const int pair = shared_pair[ty * kSide + a];
    [[unroll]] for (uint b = 0; b < kSide; ++b) {
      const uint result = first_row + tx * kSide + b;
      if (pair < 0 || result >= p.n) continue;
      float y = acc.row[a][b];
      if (kGlu != 0) y = GeluTanh(y) * acc_up.row[a][b];
      F32(results).v[uint(pair) * p.n + result] = y;
    }
  }
}

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
// The tiles of x and of weights lie column by column; odd pitches let their banks differ.
const uint kPitchX = kTile + 1, kPitchW = kResults + 1;
const uint kThreads = gl_WorkGroupSize.x;  // 4 * kTile
const uint kRowStep = kTile / 4;           // between the rows of an invocation
shared float shared_x[32 * kPitchX];
shared float shared_w[(kGlu + 1) * 32 * kPitchW];
shared int shared_row[kTile];  // of x, -1 beyond the end
shared int shared_pair[kTile];

#include "tile_rows.glsl"

void LoadX(uint chunk) {
  const uvec2 at = ChunkAt(chunk);
  // kTile rows x 32 columns: each invocation takes 8 consecutive columns of one row.
  const uint row = gl_LocalInvocationIndex >> 2;
  const uint part = (gl_LocalInvocationIndex & 3) * 8;
  const uint column = (part < 16 ? at.x : at.y) + (part & 15);
  const int source = shared_row[row];
  const uvec2 base = AdvanceBy(p.x, uint(max(source, 0)), p.k * 4);
  [[unroll]] for (uint i = 0; i < 8; ++i) {
    float value = 0.0;
    if (source >= 0 && (kChecked == 0 || column + i < p.k)) value = F32(base).v[column + i];
    shared_x[(part + i) * kPitchX + row] = value;
  }
}

void LoadWeights(uint chunk, uint first_row, uint first_weight_row) {
  for (uint at = gl_LocalInvocationIndex; at < (kGlu + 1) * kResults; at += kThreads) {
    const uint half_glu = at / kResults, row = at % kResults;
    const uvec2 weight = half_glu == 0 ? p.weight : p.weight2;
    const uint weight_row = first_weight_row + min(first_row + row, p.n - 1);
    const Chunk c = Decode(WeightRow(AdvanceBy(weight, weight_row, p.stride), p.blocks), chunk);
    [[unroll]] for (uint i = 0; i < 32; ++i) {
      shared_w[(half_glu * 32 + i) * kPitchW + row] = ValueAt(c, i);
    }
  }
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
  float acc[(kGlu + 1) * 16];
  [[unroll]] for (uint i = 0; i < (kGlu + 1) * 16; ++i) acc[i] = 0.0;
  for (uint chunk = begin; chunk < end; ++chunk) {
    barrier();
    LoadX(chunk);
    LoadWeights(chunk, first_row, first_weight_row);
    barrier();
    // Sums of sums of 32 terms round less than sums of all.
    float sum[(kGlu + 1) * 16];
    [[unroll]] for (uint i = 0; i < (kGlu + 1) * 16; ++i) sum[i] = 0.0;
    for (uint i = 0; i < 32; ++i) {
      float x[4];
      [[unroll]] for (uint a = 0; a < 4; ++a) x[a] = shared_x[i * kPitchX + ty + kRowStep * a];
      [[unroll]] for (uint b = 0; b < 4 * (kGlu + 1); ++b) {
        const float w = shared_w[((b >> 2) * 32 + i) * kPitchW + tx + 16 * (b & 3)];
        [[unroll]] for (uint a = 0; a < 4; ++a) sum[b * 4 + a] = fma(x[a], w, sum[b * 4 + a]);
      }
    }
    [[unroll]] for (uint i = 0; i < (kGlu + 1) * 16; ++i) acc[i] += sum[i];
  }
  [[unroll]] for (uint a = 0; a < 4; ++a) {
    const int pair = shared_pair[ty + kRowStep * a];
    [[unroll]] for (uint b = 0; b < 4; ++b) {
      const uint result = first_row + tx + 16 * b;
      if (pair < 0 || result >= p.n) continue;
      float y = acc[b * 4 + a];
      if (kGlu != 0) y = GeluTanh(y) * acc[(4 + b) * 4 + a];
      F32(results).v[uint(pair) * p.n + result] = y;
    }
  }
}

#version 460
// The product of one row with a matrix of weights in blocks, by dot products of four bytes. Each
// workgroup brings the row into shared memory as integers of 16 bits, those of a run of 16 with one
// scale: high and low bytes apart, because a dot product takes bytes. `kLanes` invocations share a row
// of weights. Accumulates in f32.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "math.glsl"
#include "weights.glsl"
#include "matvec.glsl"
#include "reduce.glsl"
#include "lanes.glsl"
#include "prologue.glsl"

layout(constant_id = 2) const uint kLanes = 8;   // a power of two, of one subgroup
layout(constant_id = 5) const uint kGlu = 0;     // as in matvec.comp
layout(constant_id = 8) const uint kUnroll = 1;  // chunks of a row of weights read at a time

const uint kHalves = kGlu == 1 ? 2 : 1;
const uint kRuns = kColumns / 16;

// OpSUDot on vectors in words: signed bytes times unsigned ones.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4452)
int SignedUnsignedDot(int a, uint b, spirv_literal int format);
const int kPackedBytes = 0;

shared uvec4 shared_bytes[2 * kRuns];  // the high ones of all runs, then the low ones
shared vec2 shared_scale[kRuns];       // and the sum of the run

// Four integers, of which the low bytes are wanted.
uint Bytes(ivec4 x) {
  const uvec4 bytes = uvec4(x) & 255u;
  return bytes.x | (bytes.y << 8) | (bytes.z << 16) | (bytes.w << 24);
}

// To nearest even, of what is below 2^22: added to 1.5 * 2^23, it is the low bits of the sum.
ivec4 Rounded(vec4 x) { return floatBitsToInt(x + 12582912.0) - 0x4B400000; }

// Four invocations, which follow each other, have a run.
void StageRow() {
  if (kPrologue != 0) {
    LoadNormedRow();
  } else {
    LoadRow(p.x);
  }
  [[unroll]] for (uint t = 0; t < kTurns; ++t) {
    const vec4 a = abs(x_row[t]);
    // max() may drop what is not a number: it becomes an infinite scale, and so a result that is none.
    const bool is_number = !IsNan(a.x + a.y + a.z + a.w);
    float most = is_number ? max(max(a.x, a.y), max(a.z, a.w)) : kInfinity;
    most = max(most, subgroupShuffleXor(most, 1));
    most = max(most, subgroupShuffleXor(most, 2));
    // 127 * 256: no high byte is beyond a signed one. What is too small for a reciprocal is 0.
    const float reciprocal = most > 1e-33 ? 32512.0 / most : 0.0;
    const ivec4 q = Rounded(x_row[t] * reciprocal);
    int sum = q.x + q.y + q.z + q.w;
    sum += subgroupShuffleXor(sum, 1);
    sum += subgroupShuffleXor(sum, 2);
    if (!InRow(t)) continue;
    const uint i = RowPlace(t);
    shared_bytes[i / 4][i & 3] = Bytes((q + 128) >> 8);
    shared_bytes[kRuns + i / 4][i & 3] = Bytes(q);
    const float scale = most * (1.0 / 32512.0);
    if ((i & 3) == 0) shared_scale[i / 4] = vec2(scale, scale * float(sum));
  }
  barrier();
}

float acc[kHalves];

Chunk chunks[kUnroll * kHalves];  // on their way

// Chunks `first` + lane and on of a row of weights; beyond its end, the last one.
void LoadChunks(uint lane, uint weight_row, uint first) {
  const uint last = p.blocks * kBlock / 32 - 1;
  [[unroll]] for (uint i = 0; i < kUnroll * kHalves; ++i) {
    const uvec2 weight = i % kHalves == 0 ? p.weight : p.weight2;
    chunks[i] = Decode(WeightRow(AdvanceBy(weight, weight_row, p.stride), p.blocks),
                       min(first + i / kHalves * kLanes + lane, last));
  }
}

// Of one run of 16 weights.
void AddRun(const Chunk c, uint half_glu, uint run, uvec4 high, uvec4 low, vec2 scale) {
  int sum_high = 0, sum_low = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    sum_high += SignedUnsignedDot(int(high[i]), c.word[run * 4 + i], kPackedBytes);
    sum_low += SignedUnsignedDot(int(low[i]), c.word[run * 4 + i], kPackedBytes);
  }
  const float sum = float(sum_high * 256 + sum_low);
  acc[half_glu] = fma(c.scale[run] * scale.x, sum, acc[half_glu]);
  if (kHasOffset) {
    acc[half_glu] = fma(c.offset[run], scale.y, acc[half_glu]);
  } else if (kBias != 0.0) {
    acc[half_glu] = fma(c.scale[run] * -kBias, scale.y, acc[half_glu]);
  }
}

void AddChunks(uint lane, uint first) {
  const uint count = p.blocks * kBlock / 32;
  [[unroll]] for (uint u = 0; u < kUnroll; ++u) {
    const uint chunk = first + u * kLanes + lane;
    const uvec2 at = ChunkAt(min(chunk, count - 1)) / 16;
    [[unroll]] for (uint run = 0; run < 2; ++run) {
      const uvec4 high = shared_bytes[at[run]], low = shared_bytes[kRuns + at[run]];
      const vec2 scale = chunk < count ? shared_scale[at[run]] : vec2(0);
      [[unroll]] for (uint h = 0; h < kHalves; ++h) {
        AddRun(chunks[u * kHalves + h], h, run, high, low, scale);
      }
    }
  }
}

float LaneSum(float x) { return SumOfLanes(x, kLanes); }

void Store(uint lane, uint weight_row, uint end) {
  float y = LaneSum(acc[0]);
  if (kGlu != 0) y = GeluTanh(y);
  if (kGlu == 1) y *= LaneSum(acc[kHalves - 1]);
  if (lane != 0 || weight_row >= end) return;
  F32(p.y).v[weight_row] = kGlu == 2 ? y * F32(p.extra).v[weight_row] : y;
}

void main() {
  const uint lane = Index() & (kLanes - 1), group = Index() / kLanes;
  const uint groups = gl_WorkGroupSize.x / kLanes;  // that have a row of weights each
  // Rows of weights in equal shares, whatever their number.
  const uint share = p.n / GROUPS.x, more = p.n % GROUPS.x;
  const uint begin = GROUP.x * share + min(GROUP.x, more);
  const uint end = begin + share + (GROUP.x < more ? 1 : 0);
  const uint turn = kLanes * kUnroll;
  const uint count = p.blocks * kBlock / 32;
  StageRow();
  for (uint first_row = begin; first_row < end; first_row += groups) {
    const uint weight_row = first_row + group;
    [[unroll]] for (uint h = 0; h < kHalves; ++h) acc[h] = 0.0;
    for (uint first = 0; first < count; first += turn) {
      LoadChunks(lane, min(weight_row, p.n - 1), first);
      AddChunks(lane, first);
    }
    Store(lane, weight_row, end);
  }
}

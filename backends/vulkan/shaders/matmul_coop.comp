#version 460
// Products of many rows with a matrix of weights on matrix units: x in f16 (to_half.comp), weights
// decoded to f16, sums in f32. A workgroup of four subgroups computes 64 rows x 64 results, each
// subgroup 32 x 32, in steps of 64 terms. k is a multiple of 64.
#extension GL_GOOGLE_include_directive : require
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require
#include "common.glsl"
#include "math.glsl"
#include "weights.glsl"
#include "matvec.glsl"

layout(constant_id = 5) const uint kGlu = 0;
layout(constant_id = 6) const uint kMode = 0;

const uint kTile = 64;
const uint kTerms = 64;            // of a step
const uint kPitch = kTerms / 8 + 1;  // of rows, in vectors of 8: so that they begin in different banks
shared uvec4 shared_x[kTile * kPitch];
shared uvec4 shared_w[(kGlu + 1) * kTile * kPitch];
shared float shared_out[4 * (kGlu + 1) * 256];
shared int shared_row[kTile];
shared int shared_pair[kTile];

layout(buffer_reference, std430, buffer_reference_align = 16) readonly BUFFER HalfRows { uvec4 v[]; };

#include "tile_rows.glsl"

// 64 rows x 64 terms: each of 128 invocations takes 32 terms, in the order of the weights' chunks.
void LoadX(uint step_index) {
  const uint row = gl_LocalInvocationIndex >> 1;
  const uint part = gl_LocalInvocationIndex & 1;
  const int source = shared_row[row];
  const uvec2 at = ChunkAt(step_index * 2 + part);
  const uvec2 base = AdvanceBy(p.x, uint(max(source, 0)), p.k * 2);
  [[unroll]] for (uint run = 0; run < 2; ++run) {
    HalfRows half_row = HalfRows(Advance(base, at[run] * 2));
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      shared_x[row * kPitch + part * 4 + run * 2 + i] = source < 0 ? uvec4(0) : half_row.v[i];
    }
  }
}

void LoadWeights(uint step_index, uint first_row, uint first_weight_row) {
  const uint row = gl_LocalInvocationIndex >> 1;
  const uint part = gl_LocalInvocationIndex & 1;
  const uint weight_row = first_weight_row + min(first_row + row, p.n - 1);
  [[unroll]] for (uint half_glu = 0; half_glu <= kGlu; ++half_glu) {
    const uvec2 weight = half_glu == 0 ? p.weight : p.weight2;
    const Chunk c =
        Decode(WeightRow(AdvanceBy(weight, weight_row, p.stride), p.blocks), step_index * 2 + part);
    const uint to = (half_glu * kTile + row) * kPitch + part * 4;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      uvec4 eight;
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        eight[j] = packHalf2x16(vec2(ValueAt(c, i * 8 + j * 2), ValueAt(c, i * 8 + j * 2 + 1)));
      }
      shared_w[to + i] = eight;
    }
  }
}

void main() {
  const uint first_row = GROUP.x * kTile;
  uint first_weight_row;
  if (!FindRows(GROUP.y, first_weight_row)) return;
  const uint warp_m = (gl_SubgroupID & 1) * 32, warp_n = (gl_SubgroupID >> 1) * 32;
  fcoopmatNV<32, gl_ScopeSubgroup, 16, 16> acc[(kGlu + 1) * 4];
  [[unroll]] for (uint i = 0; i < (kGlu + 1) * 4; ++i) {
    acc[i] = fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>(0.0);
  }
  for (uint step_index = 0; step_index < p.k / kTerms; ++step_index) {
    barrier();
    LoadX(step_index);
    LoadWeights(step_index, first_row, first_weight_row);
    barrier();
    [[unroll]] for (uint k = 0; k < kTerms; k += 16) {
      fcoopmatNV<16, gl_ScopeSubgroup, 16, 16> a[2];
      [[unroll]] for (uint m = 0; m < 2; ++m) {
        coopMatLoadNV(a[m], shared_x, (warp_m + m * 16) * kPitch + k / 8, kPitch, false);
      }
      [[unroll]] for (uint half_glu = 0; half_glu <= kGlu; ++half_glu) {
        [[unroll]] for (uint n = 0; n < 2; ++n) {
          fcoopmatNV<16, gl_ScopeSubgroup, 16, 16> b;
          coopMatLoadNV(b, shared_w, (half_glu * kTile + warp_n + n * 16) * kPitch + k / 8,
                        kPitch, true);
          [[unroll]] for (uint m = 0; m < 2; ++m) {
            acc[half_glu * 4 + n * 2 + m] = coopMatMulAddNV(a[m], b, acc[half_glu * 4 + n * 2 + m]);
          }
        }
      }
    }
  }
  // 16 x 16 results at a time through shared memory of the subgroup's own.
  const uint own = gl_SubgroupID * (kGlu + 1) * 256;
  [[unroll]] for (uint n = 0; n < 2; ++n) {
    [[unroll]] for (uint m = 0; m < 2; ++m) {
      subgroupBarrier();
      [[unroll]] for (uint half_glu = 0; half_glu <= kGlu; ++half_glu) {
        coopMatStoreNV(acc[half_glu * 4 + n * 2 + m], shared_out, own + half_glu * 256, 16, false);
      }
      subgroupBarrier();
      for (uint i = gl_SubgroupInvocationID; i < 256; i += gl_SubgroupSize) {
        const uint row = warp_m + m * 16 + i / 16;
        const uint result = first_row + warp_n + n * 16 + i % 16;
        const int pair = shared_pair[row];
        if (pair < 0 || result >= p.n) continue;
        const float factor = F32(p.factor).v[shared_row[row]];
        float y = shared_out[own + i] * factor;
        if (kGlu != 0) y = GeluTanh(y) * (shared_out[own + 256 + i] * factor);
        F32(p.y).v[uint(pair) * p.n + result] = y;
      }
    }
  }
}

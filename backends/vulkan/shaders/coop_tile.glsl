// Tiles of products on matrix units. The includer says how large a tile and the part of each
// subgroup are and which rows it has (tile_rows.kernel), and has shared_tile.
#include "coop.glsl"

const uint kRowMatrices = kSubgroupRows / kMatrix;
const uint kColumnMatrices = kSubgroupColumns / kMatrix;

layout(buffer_reference, std430, buffer_reference_align = 16) BUFFER Results { float v[]; };

Sums sums[kColumnMatrices * kRowMatrices];  // of a subgroup's part
uvec2 results;                              // where they go: f32[rows, n]

// Values 8 i to 8 i + 7 of a chunk.
uvec4 HalvesAt(const Chunk c, uint i) {
  const vec4 a = ValuesAt(c, i * 2), b = ValuesAt(c, i * 2 + 1);
  return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

// The factors of 16 rows each, as matrices whose columns are the same.
const uint kFactorPitch = kMatrix / 4;
void StoreFactors() {
  barrier();
  for (uint i = gl_LocalInvocationIndex; i < kTile * kFactorPitch; i += kThreads) {
    const int row = shared_row[i / kFactorPitch];
    const float factor = row < 0 ? 0.0 : F32(p.factor).v[row];
    shared_tile[i] = uvec4(floatBitsToUint(factor));
  }
  barrier();
}

// Straight to memory where the matrix is whole and its rows follow each other.
void StoreMatrix(const Sums y, uint row, uint result) {
  if (kMode == kDense && shared_pair[row + kMatrix - 1] >= 0 && result + kMatrix <= p.n &&
      p.n % 4 == 0) {
    const uvec2 to = Advance(AdvanceBy(results, uint(shared_pair[row]), p.n * 4), result * 4);
    coopMatStoreNV(y, Results(to).v, 0, p.n, false);
    return;
  }
  const uint own = (kTile + gl_SubgroupID * kMatrix) * kFactorPitch;
  subgroupBarrier();
  coopMatStoreNV(y, shared_tile, own, kFactorPitch, false);
  subgroupBarrier();
  for (uint i = gl_SubgroupInvocationID; i < kMatrix * kMatrix; i += gl_SubgroupSize) {
    const int pair = shared_pair[row + i / kMatrix];
    if (pair < 0 || result + i % kMatrix >= p.n) continue;
    F32(results).v[uint(pair) * p.n + result + i % kMatrix] =
        uintBitsToFloat(shared_tile[own + i / 4][i & 3]);
  }
}

#version 460
// Products of many rows with a matrix of weights on matrix units: x in f16 (to_half), weights
// decoded to f16, sums in f32. Where x has two parts, both are multiplied. A workgroup computes a
// tile of rows and results in steps of 64 terms, or of 32 with two parts, which it brings into
// shared memory; each subgroup has a part of the tile. What the next step needs is on its way from
// memory meanwhile. k is a multiple of the terms of a step. Workgroups in z sum a part of the terms
// each; sum_parts.kernel adds their sums.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul_coop.args.glsl"
#include "math.kernel"
#include "product.kernel"

const uint kThreads = gl_WorkGroupSize.x;
const uint kTerms = 64 / kParts;              // of a step
const uint kChunks = kTerms / 32;             // of weights, in a row of a step
const uint kVectors = kTerms / 8;             // of 8 terms, likewise
const uint kPitch = kVectors + 1;             // of a row of the tile
const uint kResults = kColumns / (kGlu + 1);  // of the tile
const uint kRowsOfX = kTile * kParts;         // all rows of the first part, then of the second

#include "tile_rows.kernel"
#include "coop_tile.glsl"

// An invocation loads: vectors of some rows of x, chunks of some rows of weights. Weights in f16
// are loaded in vectors, as x is. A step of 32 terms of weights in blocks has fewer chunks than
// there are invocations.
const bool kHalfWeights = kType == kF16;
const uint kPieces = kHalfWeights ? kVectors : kChunks;  // of weights, in a row of a step
const uint kOwnVectors = kRowsOfX * kVectors / kThreads;
const uint kTileChunks = kColumns * kPieces;
const uint kOwnChunks = (kTileChunks + kThreads - 1) / kThreads;
const bool kSomeHaveNone = kTileChunks % kThreads != 0;
uvec2 x_row[kOwnVectors];
uvec4 x_vector[kOwnVectors];
WeightRow weight_row[kOwnChunks];
RawChunk weight_chunk[kOwnChunks];

uint Own(uint i) { return gl_LocalInvocationIndex + i * kThreads; }

void FindOwnRows(uint first_result, uint first_weight_row) {
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) {
    // Rows that are not there get another's: nobody looks at their results.
    const uint tile_row = Own(i) / kVectors;
    const uint row = uint(max(shared_row[tile_row % kTile], 0));
    x_row[i] = AdvanceBy(p.x, row * kParts + tile_row / kTile, p.k * 2);
  }
  [[unroll]] for (uint i = 0; i < kOwnChunks; ++i) {
    const uint column = min(Own(i) / kPieces, kColumns - 1);
    const uint result = min(first_result + column % kResults, p.n - 1);
    weight_row[i] = RowOfWeights(column / kResults, first_weight_row + result);
  }
}

void LoadStep(uint step_index) {
  // Terms of x in the order of the weights' chunks: four vectors for each of those.
  const uint part = gl_LocalInvocationIndex % kVectors;
  const uvec2 at = ChunkAt(step_index * kChunks + part / 4);
  const uint term = ((part & 2) == 0 ? at.x : at.y) + (part & 1) * 8;
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) x_vector[i] =
      U32x4(Advance(x_row[i], term * 2)).v[0];
  [[unroll]] for (uint i = 0; i < kOwnChunks; ++i) {
    const uint piece = step_index * kPieces + Own(i) % kPieces;
    if (kHalfWeights) {
      // Rows in f16 are whole chunks of 32 terms, and end within a step of 64.
      const bool is_there = piece < p.stride / 16;
      weight_chunk[i].vector[0] = is_there ? LOAD_VECTOR(weight_row[i], piece) : uvec4(0);
    } else {
      weight_chunk[i] = Load(weight_row[i], piece);
    }
  }
}

void StoreStep(uint step_index) {
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) {
    const uint at = Own(i);
    shared_tile[at / kVectors * kPitch + at % kVectors] = x_vector[i];
  }
  [[unroll]] for (uint i = 0; i < kOwnChunks; ++i) {
    if (kSomeHaveNone && Own(i) >= kTileChunks) continue;
    const uint row = (kRowsOfX + Own(i) / kPieces) * kPitch, piece = Own(i) % kPieces;
    if (kHalfWeights) {
      shared_tile[row + piece] = weight_chunk[i].vector[0];
      continue;
    }
    const Chunk c = Unpack(weight_chunk[i], step_index * kPieces + piece);
    const uint to = row + piece * 4;
    [[unroll]] for (uint j = 0; j < 4; ++j) shared_tile[to + j] = HalvesAt(c, j);
  }
}

// The column of the tile where matrix i of the subgroup's part begins. Those of a gated product
// take turns, so that a subgroup has both halves of its results.
uint ColumnOf(uint first_column, uint i) {
  if (kGlu == 0) return first_column + i * kMatrix;
  return (i & 1) * kResults + first_column / 2 + i / 2 * kMatrix;
}

void Multiply(uint first_row, uint first_column) {
  [[unroll]] for (uint k = 0; k < kTerms; k += kMatrix) {
    Factors a[kRowMatrices * kParts];
    [[unroll]] for (uint m = 0; m < kRowMatrices * kParts; ++m) {
      const uint row = m / kRowMatrices * kTile + first_row + m % kRowMatrices * kMatrix;
      coopMatLoadNV(a[m], shared_tile, row * kPitch + k / 8, kPitch, false);
    }
    [[unroll]] for (uint n = 0; n < kColumnMatrices; ++n) {
      Factors b;
      coopMatLoadNV(b, shared_tile, (kRowsOfX + ColumnOf(first_column, n)) * kPitch + k / 8, kPitch,
                    true);
      [[unroll]] for (uint m = 0; m < kRowMatrices * kParts; ++m) {
        const uint i = n * kRowMatrices + m % kRowMatrices;
        sums[i] = coopMatMulAddNV(a[m], b, sums[i]);
      }
    }
  }
}

// A matrix of results, finished.
Sums Finished(uint m, uint n, const Sums factors, bool bounded, vec2 range) {
  Sums y = sums[n * kRowMatrices + m];
  [[unroll]] for (uint i = 0; i < y.length(); ++i) {
    y[i] *= factors[i];
    if (kGlu != 0) y[i] = GeluTanh(y[i]) * (sums[(n + kGlu) * kRowMatrices + m][i] * factors[i]);
    if (bounded) y[i] = Clamped(y[i], range.x, range.y);
  }
  return y;
}

#include "low_rank.glsl"

void StoreResults(uint first_result, uint first_row, uint first_column) {
  StoreFactors();
  const bool bounded = !IsNull(p.range);
  vec2 range = vec2(0);
  if (bounded) range = vec2(F32(p.range).v[0], F32(p.range).v[1]);
  [[unroll]] for (uint m = 0; m < kRowMatrices; ++m) {
    const uint row = first_row + m * kMatrix;
    Sums factors;
    coopMatLoadNV(factors, shared_tile, row * kFactorPitch, kFactorPitch, false);
    [[unroll]] for (uint n = 0; n < kColumnMatrices; n += kGlu + 1) {
      StoreMatrix(Finished(m, n, factors, bounded, range), row,
                  first_result + ColumnOf(first_column, n));
    }
  }
}

void main() {
  const uint first_result = GROUP.x * kResults;
  uint first_weight_row;
  if (!FindRows(GROUP.y, first_weight_row)) return;
  const uint subgroups_of_rows = kTile / kSubgroupRows;
  const uint first_row = gl_SubgroupID % subgroups_of_rows * kSubgroupRows;
  const uint first_column = gl_SubgroupID / subgroups_of_rows * kSubgroupColumns;
  [[unroll]] for (uint i = 0; i < kColumnMatrices * kRowMatrices; ++i) sums[i] = Sums(0.0);
  results = AdvanceBy(p.y, GROUP.z * At(p.rows, Step(p.step)), p.n * 4);
  FindOwnRows(first_result, first_weight_row);
  const uint steps = p.k / kTerms, share = (steps + GROUPS.z - 1) / GROUPS.z;
  const uint begin = min(GROUP.z * share, steps), end = min(begin + share, steps);
  if (begin < end) LoadStep(begin);
  for (uint step_index = begin; step_index < end; ++step_index) {
    barrier();
    StoreStep(step_index);
    barrier();
    if (step_index + 1 < end) LoadStep(step_index + 1);
    Multiply(first_row, first_column);
  }
  // Workgroups in z share the terms of x, and the first of them has those of the adapters.
  if (kAdapted != 0 && GROUP.z == 0) AddLowRank(first_result, first_row, first_column);
  StoreResults(first_result, first_row, first_column);
}

#version 460
// y = x W with W as it is stored, rows of W being the terms of the sums, on matrix units: expected
// embeddings of many rows. x is in f16 (to_half), weights are decoded to f16, sums are in f32.
// A workgroup computes a tile of rows and columns in steps of 64 terms; one in z takes a part of
// the terms, and sum_parts.kernel adds the parts. k is a multiple of 64, n one of 128.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul_stored_coop.args.glsl"
#include "product.kernel"

const uint kMode = kDense;
const uint kTile = 128;     // rows
const uint kColumns = 128;  // a whole number of what the chunks of any type lie in
const uint kSubgroupRows = 64, kSubgroupColumns = 32;

const uint kThreads = gl_WorkGroupSize.x;
const uint kTerms = 64;                      // of a step
const uint kVectors = kTerms / 8;            // of 8 terms, in a row of x
const uint kPitch = kVectors + 1;            // so that rows begin in different banks
const uint kChunks = kColumns / 32;          // of weights, in a term
const uint kWeightPitch = kColumns / 8 + 1;  // of 8 columns
const uint kWeights = kTile * kPitch;        // where they begin
// Rows of x, then terms of weights.
shared uvec4 shared_tile[kWeights + kTerms * kWeightPitch];
shared int shared_row[kTile];
shared int shared_pair[kTile];

#include "tile_rows.kernel"
#include "coop_tile.glsl"

// An invocation loads: vectors of some rows of x, chunks of some terms of weights.
const uint kOwnVectors = kTile * kVectors / kThreads;
const uint kOwnChunks = kTerms * kChunks / kThreads;
uvec2 x_row[kOwnVectors];
uvec4 x_vector[kOwnVectors];
RawChunk weight_chunk[kOwnChunks];

uint Own(uint i) { return gl_LocalInvocationIndex + i * kThreads; }
uint ChunkOf(uint i, uint first_column) { return first_column / 32 + Own(i) % kChunks; }

void FindOwnRows() {
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) {
    // Rows that are not there get another's: nobody looks at their results.
    const int row = max(shared_row[Own(i) / kVectors], 0);
    x_row[i] = AdvanceBy(p.x, uint(row), p.k * 2);
  }
}

void LoadStep(uint first_term, uint first_column) {
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) {
    const uint term = first_term + Own(i) % kVectors * 8;
    x_vector[i] = U32x4(Advance(x_row[i], term * 2)).v[0];
  }
  [[unroll]] for (uint i = 0; i < kOwnChunks; ++i) {
    const uint term = first_term + Own(i) / kChunks;
    weight_chunk[i] = Load(RowOfWeights(0, term), ChunkOf(i, first_column));
  }
}

void StoreStep(uint first_column) {
  [[unroll]] for (uint i = 0; i < kOwnVectors; ++i) {
    shared_tile[Own(i) / kVectors * kPitch + Own(i) % kVectors] = x_vector[i];
  }
  [[unroll]] for (uint i = 0; i < kOwnChunks; ++i) {
    const uint chunk = ChunkOf(i, first_column);
    const Chunk c = Unpack(weight_chunk[i], chunk);
    const uvec2 at = (ChunkAt(chunk) - first_column) / 8;
    const uint to = kWeights + Own(i) / kChunks * kWeightPitch;
    [[unroll]] for (uint j = 0; j < 4; ++j) shared_tile[to + at[j / 2] + j % 2] = HalvesAt(c, j);
  }
}

void Multiply(uint row, uint column) {
  [[unroll]] for (uint k = 0; k < kTerms; k += kMatrix) {
    Factors a[kRowMatrices];
    [[unroll]] for (uint m = 0; m < kRowMatrices; ++m) {
      coopMatLoadNV(a[m], shared_tile, (row + m * kMatrix) * kPitch + k / 8, kPitch, false);
    }
    [[unroll]] for (uint n = 0; n < kColumnMatrices; ++n) {
      Factors b;
      coopMatLoadNV(b, shared_tile, kWeights + k * kWeightPitch + (column + n * kMatrix) / 8,
                    kWeightPitch, false);
      [[unroll]] for (uint m = 0; m < kRowMatrices; ++m) {
        const uint i = n * kRowMatrices + m;
        sums[i] = coopMatMulAddNV(a[m], b, sums[i]);
      }
    }
  }
}

void StoreResults(uint first_column, uint row, uint column) {
  StoreFactors();
  [[unroll]] for (uint m = 0; m < kRowMatrices; ++m) {
    Sums factors;
    coopMatLoadNV(factors, shared_tile, (row + m * kMatrix) * kFactorPitch, kFactorPitch, false);
    [[unroll]] for (uint n = 0; n < kColumnMatrices; ++n) {
      Sums y = sums[n * kRowMatrices + m];
      [[unroll]] for (uint i = 0; i < y.length(); ++i) y[i] *= factors[i];
      StoreMatrix(y, row + m * kMatrix, first_column + column + n * kMatrix);
    }
  }
}

void main() {
  uint unused;
  if (!FindRows(GROUP.y, unused)) return;
  const uint first_column = GROUP.x * kColumns;
  const uint row = gl_SubgroupID % (kTile / kSubgroupRows) * kSubgroupRows;
  const uint column = gl_SubgroupID / (kTile / kSubgroupRows) * kSubgroupColumns;
  [[unroll]] for (uint i = 0; i < kColumnMatrices * kRowMatrices; ++i) sums[i] = Sums(0.0);
  results = AdvanceBy(p.y, GROUP.z * At(p.rows, Step(p.step)), p.n * 4);
  FindOwnRows();
  const uint share = (p.k / kTerms + GROUPS.z - 1) / GROUPS.z * kTerms;
  const uint begin = min(GROUP.z * share, p.k), end = min(begin + share, p.k);
  if (begin < end) LoadStep(begin, first_column);
  for (uint term = begin; term < end; term += kTerms) {
    barrier();
    StoreStep(first_column);
    barrier();
    if (term + kTerms < end) LoadStep(term + kTerms, first_column);
    Multiply(row, column);
  }
  StoreResults(first_column, row, column);
}

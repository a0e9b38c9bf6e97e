#version 460
// Products of f32 matrices of any layout. A workgroup computes a tile of results in blocks of 4 x
// 4; terms come through shared memory, kDepth at a time, and are added in their order. What the
// next step needs is on its way from memory meanwhile. The workgroups of a GROUP.y share the terms
// with the others and have results of their own, y[GROUP.y].
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matmul_plain.args.glsl"

layout(buffer_reference, std430, buffer_reference_align = 16) BUFFER Results { vec4 v[]; };

const uint kThreads = gl_WorkGroupSize.x;
const uint kSide = 4;
const uint kColumnBlocks = kTileColumns / kSide;
const uint kBlocks = kTileRows / kSide * kColumnBlocks;
const uint kOwn = (kBlocks + kThreads - 1) / kThreads;  // blocks of an invocation; some may be none
vec4 sums[kOwn * kSide];                                // a vector for each row of a block

// A matrix: its places are the rows of a or the columns of b. An invocation loads vectors of four
// elements, which are terms of one place or places of one term, whichever are neighbours in memory.
struct Matrix {
  uvec2 values;
  uint places, place_stride, term_stride;
  uint first_place;  // of the tile
};
const uint kVectorsA = kTileRows * kDepth / kSide, kVectorsB = kTileColumns * kDepth / kSide;
const uint kOwnA = (kVectorsA + kThreads - 1) / kThreads;
const uint kOwnB = (kVectorsB + kThreads - 1) / kThreads;
vec4 own_a[kOwnA], own_b[kOwnB];

// Elements by term, four places in a vector. Terms begin in different banks.
const uint kPitchA = kTileRows / 4 + 1, kPitchB = kTileColumns / 4 + 1;
shared vec4 shared_a[kDepth * kPitchA];
shared vec4 shared_b[kDepth * kPitchB];

// Where a vector lies in a tile of `places`: its first place and term.
uvec2 VectorAt(uint i, uint by_term, uint places) {
  if (by_term != 0) return uvec2(i / (kDepth / 4), i % (kDepth / 4) * 4);
  return uvec2(i % (places / 4) * 4, i / (places / 4));
}

vec4 LoadVector(const Matrix m, uvec2 at, uint by_term, uint first_term, uint end) {
  const uint place = m.first_place + at.x, term = first_term + at.y;
  vec4 x = vec4(0.0);
  if (place >= m.places || term >= end) return x;
  const uint element = place * m.place_stride + term * m.term_stride;
  if (kVectors != 0) return F32x4(m.values).v[element / 4];
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const bool inside = by_term != 0 ? term + i < end : place + i < m.places;
    const uint stride = by_term != 0 ? m.term_stride : m.place_stride;
    if (inside) x[i] = F32(m.values).v[element + i * stride];
  }
  return x;
}

void LoadStep(const Matrix a, const Matrix b, uint term, uint end) {
  [[unroll]] for (uint i = 0; i < kOwnA; ++i) {
    const uvec2 at = VectorAt(gl_LocalInvocationIndex + i * kThreads, kByTermA, kTileRows);
    own_a[i] = LoadVector(a, at, kByTermA, term, end);
  }
  [[unroll]] for (uint i = 0; i < kOwnB; ++i) {
    const uvec2 at = VectorAt(gl_LocalInvocationIndex + i * kThreads, kByTermB, kTileColumns);
    own_b[i] = LoadVector(b, at, kByTermB, term, end);
  }
}

void StoreStep() {
  [[unroll]] for (uint i = 0; i < kOwnA; ++i) {
    const uint vector = gl_LocalInvocationIndex + i * kThreads;
    if (vector >= kVectorsA) continue;
    const uvec2 at = VectorAt(vector, kByTermA, kTileRows);
    if (kByTermA != 0) {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        shared_a[(at.y + j) * kPitchA + at.x / 4][at.x % 4] = own_a[i][j];
      }
    } else {
      shared_a[at.y * kPitchA + at.x / 4] = own_a[i];
    }
  }
  [[unroll]] for (uint i = 0; i < kOwnB; ++i) {
    const uint vector = gl_LocalInvocationIndex + i * kThreads;
    if (vector >= kVectorsB) continue;
    const uvec2 at = VectorAt(vector, kByTermB, kTileColumns);
    if (kByTermB != 0) {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        shared_b[(at.y + j) * kPitchB + at.x / 4][at.x % 4] = own_b[i][j];
      }
    } else {
      shared_b[at.y * kPitchB + at.x / 4] = own_b[i];
    }
  }
}

void Multiply() {
  const uint kTogether = 4;
  [[unroll]] for (uint own = 0; own < kOwn; ++own) {
    const uint block = min(gl_LocalInvocationIndex + own * kThreads, kBlocks - 1);
    for (uint first = 0; first < kDepth; first += kTogether) {
      [[unroll]] for (uint term = 0; term < kTogether; ++term) {
        const vec4 a = shared_a[(first + term) * kPitchA + block / kColumnBlocks];
        const vec4 b = shared_b[(first + term) * kPitchB + block % kColumnBlocks];
        [[unroll]] for (uint i = 0; i < kSide; ++i) {
          sums[own * kSide + i] = fma(vec4(a[i]), b, sums[own * kSide + i]);
        }
      }
    }
  }
}

// A row of a block.
void StoreRow(uint at, uint count, vec4 row) {
  row *= p.factor;
  if (kVectors != 0) {
    if (kAdds != 0) row += Results(p.y).v[at / 4];
    Results(p.y).v[at / 4] = row;
    return;
  }
  [[unroll]] for (uint j = 0; j < kSide; ++j) {
    if (j >= count) continue;
    F32(p.y).v[at + j] = kAdds != 0 ? F32(p.y).v[at + j] + row[j] : row[j];
  }
}

// For the part of y that follows `skipped` results.
void StoreResults(uint first_row, uint first_column, uint rows, uint skipped) {
  [[unroll]] for (uint own = 0; own < kOwn; ++own) {
    const uint block = gl_LocalInvocationIndex + own * kThreads;
    const uint column = first_column + block % kColumnBlocks * kSide;
    if (block >= kBlocks || column >= p.columns) continue;
    [[unroll]] for (uint i = 0; i < kSide; ++i) {
      const uint row = first_row + block / kColumnBlocks * kSide + i;
      if (row >= rows) continue;
      StoreRow(skipped + row * p.columns + column, p.columns - column, sums[own * kSide + i]);
    }
  }
}

void main() {
  const uint rows = At(p.rows, Step(p.step)), terms = At(p.terms, Step(p.step));
  const uint across = (p.columns + kTileColumns - 1) / kTileColumns;
  const uint tiles = (rows + kTileRows - 1) / kTileRows * across;
  const uint share = ((terms + kDepth - 1) / kDepth + GROUPS.y - 1) / GROUPS.y * kDepth;
  const uint begin = min(GROUP.y * share, terms), end = min(begin + share, terms);
  for (uint tile = GROUP.x; tile < tiles; tile += GROUPS.x) {
    const uint first_row = tile / across * kTileRows;
    const uint first_column = tile % across * kTileColumns;
    const Matrix a = Matrix(p.a, rows, p.a_row, p.a_term, first_row);
    const Matrix b = Matrix(p.b, p.columns, p.b_column, p.b_term, first_column);
    [[unroll]] for (uint i = 0; i < kOwn * kSide; ++i) sums[i] = vec4(0.0);
    LoadStep(a, b, begin, end);
    for (uint term = begin; term < end; term += kDepth) {
      barrier();
      StoreStep();
      barrier();
      LoadStep(a, b, term + kDepth, end);
      Multiply();
    }
    StoreResults(first_row, first_column, rows, GROUP.y * rows * p.columns);
  }
}

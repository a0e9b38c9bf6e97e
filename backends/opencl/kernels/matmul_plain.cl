// Products of f32 matrices of any layout. A work-group computes a tile of results in blocks of 4 x
// 4; terms come through local memory, kDepth at a time, and are added in their order. What the next
// step needs is on its way from memory meanwhile. The work-groups of a part share the terms with
// the others and have results of their own, y[part].
#include "common.cl"
#include "matmul_plain.args"

#define kSide 4
#define kColumnBlocks (kTileColumns / kSide)
#define kBlocks (kTileRows / kSide * kColumnBlocks)
#define kOwn ((kBlocks + THREADS - 1) / THREADS)  // blocks of a work-item; some may be none

// A matrix: its places are the rows of a or the columns of b. A work-item loads vectors of four
// elements, which are terms of one place or places of one term, whichever are neighbours in memory.
typedef struct {
  __global const float* values;
  uint places, place_stride, term_stride;
  uint first_place;  // of the tile
} Matrix;
#define kVectorsA (kTileRows * kDepth / kSide)
#define kVectorsB (kTileColumns * kDepth / kSide)
#define kOwnA ((kVectorsA + THREADS - 1) / THREADS)
#define kOwnB ((kVectorsB + THREADS - 1) / THREADS)
// A work-item of a CPU has all of them: their loops stay loops.
#ifdef CPU
#define UNROLL_OWN
#else
#define UNROLL_OWN UNROLL
#endif

// Elements by term. Terms begin in different banks.
#define kPitchA (kTileRows + 4)
#define kPitchB (kTileColumns + 4)

// Where vector `i` lies in a tile of `places`: its first place and term.
INLINED uint2 VectorAt(uint i, uint by_term, uint places) {
  if (by_term) return (uint2)(i / (kDepth / 4), i % (kDepth / 4) * 4);
  return (uint2)(i % (places / 4) * 4, i / (places / 4));
}

INLINED float4 LoadVector(const Matrix* m, uint2 at, uint by_term, uint first_term, uint end) {
  const uint place = m->first_place + at.x, term = first_term + at.y;
  if (place >= m->places || term >= end) return (float4)(0.0f);
  __global const float* from =
      m->values + (size_t)place * m->place_stride + (size_t)term * m->term_stride;
#if kVectors
  return *(__global const float4*)from;
#else
  const uint stride = by_term ? m->term_stride : m->place_stride;
  const uint count = by_term ? end - term : m->places - place;
  float x[4];
  UNROLL for (uint i = 0; i < 4; ++i) x[i] = i < count ? from[i * stride] : 0.0f;
  return (float4)(x[0], x[1], x[2], x[3]);
#endif
}

INLINED void LoadStep(const Matrix* m, uint count, uint by_term, uint places, uint term, uint end,
                      float4* own) {
  UNROLL_OWN for (uint i = 0; i < (count + THREADS - 1) / THREADS; ++i) {
    own[i] = LoadVector(m, VectorAt(ME + i * THREADS, by_term, places), by_term, term, end);
  }
}

INLINED void StoreStep(const float4* own, uint count, uint by_term, uint places,
                       __local float* shared) {
  const uint pitch = places + 4;
  UNROLL_OWN for (uint i = 0; i < (count + THREADS - 1) / THREADS; ++i) {
    if (ME + i * THREADS >= count) continue;
    const uint2 at = VectorAt(ME + i * THREADS, by_term, places);
    __local float* to = shared + at.y * pitch + at.x;
    if (by_term) {
      to[0] = own[i].x;
      to[pitch] = own[i].y;
      to[2 * pitch] = own[i].z;
      to[3 * pitch] = own[i].w;
    } else {
      *(__local float4*)to = own[i];
    }
  }
}

INLINED void Multiply(__local const float* shared_a, __local const float* shared_b, float4* sums) {
  for (uint own = 0; own < kOwn; ++own) {
    const uint block = min(ME + own * THREADS, (uint)kBlocks - 1);
    __local const float* a_at = shared_a + block / kColumnBlocks * kSide;
    __local const float* b_at = shared_b + block % kColumnBlocks * kSide;
    UNROLL for (uint term = 0; term < kDepth; ++term) {
      const float4 a = *(__local const float4*)(a_at + term * kPitchA);
      const float4 b = *(__local const float4*)(b_at + term * kPitchB);
      sums[own * kSide] = fma((float4)(a.x), b, sums[own * kSide]);
      sums[own * kSide + 1] = fma((float4)(a.y), b, sums[own * kSide + 1]);
      sums[own * kSide + 2] = fma((float4)(a.z), b, sums[own * kSide + 2]);
      sums[own * kSide + 3] = fma((float4)(a.w), b, sums[own * kSide + 3]);
    }
  }
}

// A row of a block, of which `count` results are there.
INLINED void StoreRow(__global float* y, uint count, float4 row) {
#if kVectors
  __global float4* to = (__global float4*)y;
  *to = kAdds ? *to + row : row;
#else
  const float values[4] = {row.x, row.y, row.z, row.w};
  for (uint j = 0; j < min(count, 4u); ++j) y[j] = kAdds ? y[j] + values[j] : values[j];
#endif
}

KERNEL(matmul_plain) {
  __local float shared_a[kDepth * kPitchA] __attribute__((aligned(16)));
  __local float shared_b[kDepth * kPitchB] __attribute__((aligned(16)));
  const uint rows = ROWS_OF(rows), terms = ROWS_OF(terms);
  const uint across = (push.columns + kTileColumns - 1) / kTileColumns;
  const uint tiles = (rows + kTileRows - 1) / kTileRows * across;
  const uint part = (uint)get_group_id(1), parts = (uint)get_num_groups(1);
  const uint share = ((terms + kDepth - 1) / kDepth + parts - 1) / parts * kDepth;
  const uint begin = min(part * share, terms), end = min(begin + share, terms);
  for (uint tile = GROUP; tile < tiles; tile += GROUPS) {
    const uint first_row = tile / across * kTileRows;
    const uint first_column = tile % across * kTileColumns;
    const Matrix a = {AT(float, a), rows, push.a_row, push.a_term, first_row};
    const Matrix b = {AT(float, b), push.columns, push.b_column, push.b_term, first_column};
    float4 sums[kOwn * kSide], own_a[kOwnA], own_b[kOwnB];
    for (uint i = 0; i < kOwn * kSide; ++i) sums[i] = (float4)(0.0f);
    LoadStep(&a, kVectorsA, kByTermA, kTileRows, begin, end, own_a);
    LoadStep(&b, kVectorsB, kByTermB, kTileColumns, begin, end, own_b);
    for (uint term = begin; term < end; term += kDepth) {
      BARRIER();
      StoreStep(own_a, kVectorsA, kByTermA, kTileRows, shared_a);
      StoreStep(own_b, kVectorsB, kByTermB, kTileColumns, shared_b);
      BARRIER();
      LoadStep(&a, kVectorsA, kByTermA, kTileRows, term + kDepth, end, own_a);
      LoadStep(&b, kVectorsB, kByTermB, kTileColumns, term + kDepth, end, own_b);
      Multiply(shared_a, shared_b, sums);
    }
    for (uint own = 0; own < kOwn; ++own) {
      const uint block = ME + own * THREADS;
      const uint column = first_column + block % kColumnBlocks * kSide;
      if (block >= kBlocks || column >= push.columns) continue;
      for (uint i = 0; i < kSide; ++i) {
        const uint row = first_row + block / kColumnBlocks * kSide + i;
        if (row >= rows) continue;
        StoreRow(AT(float, y) + ((size_t)part * rows + row) * push.columns + column,
                 push.columns - column, push.factor * sums[own * kSide + i]);
      }
    }
  }
}

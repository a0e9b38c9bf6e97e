// A row of x as bytes: integers of 16 bits, those of a run of 16 with one scale, high and low bytes
// apart, because products of bytes take bytes; and what both kernels of such rows share. Every
// kernel makes the same integers of a row.
#include "small_numbers.cuh"

// Two chunks of q4_k that follow each other have their scales together: a lane takes both. Forms
// for any type do without.
#ifdef OPEN
#define kPairs false
#else
#define kPairs (kType == kQ4_K)
#endif

// The place of a run of a chunk: those of eight lanes after each other, which then read different
// banks.
__forceinline__ uint PlaceOf(uint chunk, uint run) {
  if (kPairs) return (chunk >> 4) * 32 + run * 16 + (chunk & 1) * 8 + ((chunk & 15) >> 1);
  return (chunk >> 3) * 16 + run * 8 + (chunk & 7);
}

// The same of the run that has element 16 * i. The inverse of ChunkAt.
__forceinline__ uint PlaceOfRun(uint i) {
  if (kType == kQ4_K || kType == kQ5_K) {
    return PlaceOf((i >> 4) * 8 + ((i >> 2) & 3) * 2 + (i & 1), (i >> 1) & 1);
  }
  if (kType == kQ6_K) return PlaceOf((i >> 3) * 4 + (i & 3), (i >> 2) & 1);
  return PlaceOf(i >> 1, i & 1);
}

// Byte 0 or 1 of four integers.
__forceinline__ uint Bytes(int4 x, uint byte) {
  const uint of_two = 0x0040 + byte * 0x11;
  return __byte_perm(__byte_perm(x.x, x.y, of_two), __byte_perm(x.z, x.w, of_two), 0x5410);
}

// x * factor to the nearest integer, plus kSmallBits.
__forceinline__ int RoundedBits(float x, float factor) {
  return as_int(fma(x, factor, kSmallBase));
}

__forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__forceinline__ float InverseRoot(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Four elements: bytes of integers, and the scale of their run, or of both runs that have one
// together, with the sum of the run times the scale.
struct QuadBytes {
  uint high, low;
  float2 scale;
};

// Four threads, which follow each other, have a run, and eight those that have a scale together.
__forceinline__ QuadBytes BytesOf(float4 x) {
  const float4 a = fabs(x);
  // fmaxf() may drop a NaN. The scale becomes infinite instead, and so the result NaN.
  const bool is_number = !IsNan(a.x + a.y + a.z + a.w);
  float most = is_number ? fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)) : kInfinity;
  most = fmaxf(most, ShuffleXor(most, 1));
  most = fmaxf(most, ShuffleXor(most, 2));
  if (kPairs) most = fmaxf(most, ShuffleXor(most, 4));
  // 127 * 256: no high byte is beyond a signed one. What is too small for a reciprocal is 0.
  const float reciprocal = most > 1e-33f ? 32512.0f * Reciprocal(most) : 0.0f;
  const int4 q = make_int4(RoundedBits(x.x, reciprocal), RoundedBits(x.y, reciprocal),
                           RoundedBits(x.z, reciprocal), RoundedBits(x.w, reciprocal));
  // Four times kSmallBits are more than an int has.
  int sum = int(uint(q.x) + uint(q.y) + uint(q.z) + uint(q.w) - 4u * kSmallBits);
  sum += ShuffleXor(sum, 1);
  sum += ShuffleXor(sum, 2);
  if (kPairs) sum += ShuffleXor(sum, 4);
  const int4 high = make_int4(q.x + 128, q.y + 128, q.z + 128, q.w + 128);
  const float scale = most * (1.0f / 32512.0f);
  return {Bytes(high, 1), Bytes(q, 0), make_float2(scale, scale * SmallToFloat(sum))};
}

// Whether the thread with a quad leaves the scale.
__forceinline__ bool HasScale(uint quad) { return (quad & 3) == 0 && (!kPairs || (quad & 4) == 0); }

// A plan of one row looks up no number of rows.
__forceinline__ uint FirstOwnRow() { return kOneRow != 0 ? 0 : WORKGROUP_Y * kOwnRows; }

// ---- norms of rows ------------------------------------------------------------------------------

// The sum of the squares of each row, by warp: of the row as it comes, then of what it becomes.
__shared__ float4 shared_squares[2 * kOwnRows * SUBGROUP_COUNT / 4];

__forceinline__ float4 QuadOf(ARGS_ const float4* row, uint quad) {
  return quad < push.k / 4 ? row[quad] : BROADCAST(0.0f);
}

__forceinline__ float SquaresOf(const float4* row) {
  float squares = 0.0f;
  UNROLL for (uint t = 0; t < kTurns; ++t) squares += dot(row[t], row[t]);
  return squares;
}

// Leaves the sum of this warp's squares of a row at `at`.
__forceinline__ void NoteSquares(uint at, const float4* row) {
  const float squares = SumOfLanes(SquaresOf(row), SUBGROUP_SIZE);
  if (SUBGROUP_LANE == 0) ((float*)shared_squares)[at * SUBGROUP_COUNT + SUBGROUP_INDEX] = squares;
}
// The sum that all warps have left there.
__forceinline__ float SquaresOfRow(uint at) {
  float4 sum = BROADCAST(0.0f);
  UNROLL for (uint i = 0; i < SUBGROUP_COUNT / 4; ++i) {
    sum += shared_squares[at * SUBGROUP_COUNT / 4 + i];
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

// This thread's quads of a row; `otherwise` where there is none.
__forceinline__ void LoadQuads(ARGS_ float4* quads, Memory row, float otherwise) {
  UNROLL for (uint t = 0; t < kTurns; ++t) {
    const uint quad = t * THREADS + ME;
    quads[t] = row != nullptr && quad < push.k / 4 ? FLOAT4S_AT(row)[quad] : BROADCAST(otherwise);
  }
}

__forceinline__ float ScaleOf(ARGS_ const Prologue& first) {
  return first.scale == nullptr ? 1.0f : FLOATS_AT(first.scale)[0];
}

// (residual + x * factor * weight) * scale in place of x, which one block leaves for others.
__forceinline__ void AddResidual(ARGS_ const Prologue& first, uint row, float4* x,
                                 const float4* residual, const float4* weight, float factor,
                                 float scale) {
  const bool leads = WORKGROUP == 0 && first.sum != nullptr;
  float4* sums = OUT_FLOAT4S_AT(AdvanceBy(first.sum, row, push.k * 4));
  UNROLL for (uint t = 0; t < kTurns; ++t) {
    const uint quad = t * THREADS + ME;
    x[t] = (residual[t] + x[t] * factor * weight[t]) * scale;
    if (leads && quad < push.k / 4) sums[quad] = x[t];
  }
}

// PrefetchAll by the lanes of a subgroup.
__forceinline__ void PrefetchByLanes(const void* from, uint bytes) {
  constexpr uint kLine = 128;
  if (from == nullptr) return;
  for (uint at = SUBGROUP_LANE * kLine; at < bytes; at += SUBGROUP_SIZE * kLine) {
    Prefetch((const uchar*)from + at);
  }
}

__forceinline__ uint Chunks(const Push& push) { return push.k / 32; }

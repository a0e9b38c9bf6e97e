// Norms of rows: each thread has up to four vectors of a row in registers, so that all that is read
// is on its way at once. Rows that are longer, or not of whole vectors, and other reductions are
// computed as everywhere (rows.kernel).
#undef KERNEL
#define KERNEL(name) __forceinline__ void AnyRows(const Push& push)
#include "rows.kernel"

#define kMostQuads 4

__forceinline__ bool IsAligned(Memory memory) { return ((unsigned long long)memory & 15) == 0; }

__forceinline__ bool IsInRegisters(const Push& push) {
  return kNarrow == 0 && push.columns % 4 == 0 && push.columns / 4 <= kMostQuads * THREADS &&
         IsAligned(push.x) && IsAligned(push.y) && IsAligned(push.weight) &&
         IsAligned(push.residual) && IsAligned(push.weight2) && IsAligned(push.y2);
}

// The vectors of this thread of a row; `otherwise` if there is no such row.
__forceinline__ void LoadQuads(float4* quads, Memory row, uint count, float otherwise) {
  UNROLL for (uint t = 0; t < kMostQuads; ++t) {
    const uint quad = t * THREADS + ME;
    quads[t] = row != nullptr && quad < count ? FLOAT4S_AT(row)[quad] : BROADCAST(otherwise);
  }
}

__forceinline__ float FactorOf(const float4* quads, float columns, float eps) {
  float squares = 0.0f;
  UNROLL for (uint t = 0; t < kMostQuads; ++t) squares += dot(quads[t], quads[t]);
  return 1.0f / sqrt(GroupSum(squares) / columns + eps);
}

__forceinline__ void NormInRegisters(ARGS_ uint row) {
  const uint count = push.columns / 4;
  const Offset first = OFFSET(row) * push.columns;
  const float columns = float(push.columns);
  float4 x[kMostQuads], weight[kMostQuads], residual[kMostQuads], weight2[kMostQuads];
  LoadQuads(x, push.x + first * 4, count, 0.0f);
  LoadQuads(weight, push.weight, count, 1.0f);
  if (kOp != kRmsNorm) LoadQuads(residual, push.residual + first * 4, count, 0.0f);
  if (kOp == kTwoNorms) LoadQuads(weight2, push.weight2, count, 1.0f);
  const float scale = kOp != kRmsNorm && !IS_NULL(scale) ? FLOATS(scale)[0] : 1.0f;
  const float factor = FactorOf(x, columns, push.eps);
  UNROLL for (uint t = 0; t < kMostQuads; ++t) {
    const uint quad = t * THREADS + ME;
    x[t] = x[t] * factor * weight[t];
    if (kOp != kRmsNorm) x[t] = (residual[t] + x[t]) * scale;
    if (quad >= count) {
      x[t] = BROADCAST(0.0f);
    } else if (kOp == kRmsNorm && kHalf != 0) {
      OUT_FLOAT2S_AT(push.y + first * 2)
      [quad] = as_float2(
          make_uint2(HalfPair(make_float2(x[t].x, x[t].y)), HalfPair(make_float2(x[t].z, x[t].w))));
    } else {
      OUT_FLOAT4S_AT(push.y + first * 4)[quad] = x[t];
    }
  }
  if (kOp != kTwoNorms) return;
  const float factor2 = FactorOf(x, columns, push.eps2);
  UNROLL for (uint t = 0; t < kMostQuads; ++t) {
    const uint quad = t * THREADS + ME;
    if (quad < count) OUT_FLOAT4S_AT(push.y2 + first * 4)[quad] = x[t] * factor2 * weight2[t];
  }
}

EARLY_KERNEL(rows) {
  WAIT_FOR_INPUTS();
  if (!IsInRegisters(push)) {
    AnyRows(push);
    return;
  }
  for (uint row = WORKGROUP; row < ROWS_OF(rows); row += WORKGROUPS) {
    NormInRegisters(ARGS row);
  }
}

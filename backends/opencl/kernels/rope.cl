// Rotary embedding, after an optional RMS norm of each head: the two follow each other in a model
// and read the same few values. One work-group for each head of each row.
#include "common.cl"
#include "rope.args"
#include "math.kernel"
#include "reduce.cl"

#if kHalf
#define STORE(i, value) AT(ushort, y)[i] = (ushort)FloatToHalf(value)
#else
#define STORE(i, value) AT(float, y)[i] = value
#endif

KERNEL(rope) {
  __local float shared[THREADS];
  const uint count = ROWS_OF(rows) * push.heads;
  const bool weighted = !IS_NULL(weight);
  __global const float* weight = AT(float, weight);
  for (uint head = GROUP; head < count; head += GROUPS) {
    const size_t first = (size_t)head * push.dim;
    __global const float* x = AT(float, x) + first;
    float factor = 1.0f;
#if kNorm
    factor = 1.0f / sqrt(GroupSum(MySum(x, push.dim, true), shared) / (float)push.dim + push.eps);
#endif
    const uint pos = AT(uint, pos)[head / push.heads];
    FOR_MINE(i, push.half_rot) {
      const uint j = i + push.half_rot;
      const float2 turn = CosSin(Turns(pos, AT(uint2, rates)[i]));
      float a = x[i] * factor, b = x[j] * factor;
      if (weighted) {
        a *= weight[i];
        b *= weight[j];
      }
      STORE(first + i, a * turn.x - b * turn.y);
      STORE(first + j, a * turn.y + b * turn.x);
    }
    for (uint i = 2 * push.half_rot + ME; i < push.dim; i += THREADS) {
      float a = x[i] * factor;
      if (weighted) a *= weight[i];
      STORE(first + i, a);
    }
  }
}

// Rotary embedding, after an optional RMS norm of each head: the two follow each other in a model
// and read the same few values. One work-group for each head of each row; without the norm,
// work-items take a pair each, of any head.
#include "common.cl"
#include "rope.args"
#include "math.kernel"
#include "reduce.cl"

#if kHalf
#define STORE(i, value) AT(ushort, y)[i] = (ushort)FloatToHalf(value)
#else
#define STORE(i, value) AT(float, y)[i] = value
#endif

// Cosine and sine of the angle of pair `i` of a head.
#define TURN_OF(head, i) CosSin(Turns(AT(uint, pos)[(head) / push.heads], AT(uint2, rates)[i]))

#define STORE_PAIR(at, pair) \
  STORE(at, (pair).x);       \
  STORE((at) + push.half_rot, (pair).y)

// The dimension of the i-th value of a head that is not rotated.
uint Other(uint i, uint first, uint half_rot) { return i < first ? i : i + 2 * half_rot; }

KERNEL(rope) {
  const uint count = ROWS_OF(rows) * push.heads;
#if !kNorm
  const uint others = push.dim - 2 * push.half_rot;
  __global const float* x = AT(float, x);
  FOR_EACH(pair, count * push.half_rot) {
    const uint head = pair / push.half_rot, i = pair % push.half_rot;
    const size_t at = (size_t)head * push.dim + push.first + i;
    const float2 turn = TURN_OF(head, i);
    const float a = x[at], b = x[at + push.half_rot];
    const float2 turned = Turned(a, b, turn);
    STORE_PAIR(at, turned);
  }
  FOR_EACH(other, count * others) {
    const size_t at =
        (size_t)(other / others) * push.dim + Other(other % others, push.first, push.half_rot);
    STORE(at, x[at]);
  }
#else
  __local float shared[THREADS];
  const bool weighted = !IS_NULL(weight);
  __global const float* weight = AT(float, weight);
  for (uint head = GROUP; head < count; head += GROUPS) {
    const size_t first = (size_t)head * push.dim;
    __global const float* x = AT(float, x) + first;
    const float factor =
        1.0f / sqrt(GroupSum(MySum(x, push.dim, true), shared) / (float)push.dim + push.eps);
    FOR_MINE(i, push.half_rot) {
      const uint low = push.first + i, high = low + push.half_rot;
      float a = x[low] * factor, b = x[high] * factor;
      if (weighted) {
        a *= weight[low];
        b *= weight[high];
      }
      const float2 turn = TURN_OF(head, i);
      const float2 turned = Turned(a, b, turn);
      STORE_PAIR(first + low, turned);
    }
    FOR_MINE(i, push.dim - 2 * push.half_rot) {
      const uint other = Other(i, push.first, push.half_rot);
      float a = x[other] * factor;
      if (weighted) a *= weight[other];
      STORE(first + other, a);
    }
  }
#endif
}

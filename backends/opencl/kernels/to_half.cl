// Rows of f32 as f16 times a power of two of their own, so that the largest value of a row fits f16
// and the smallest lose little. With two parts a value is the sum of two f16 numbers, which lose
// 2^-22 of it. One work-group for each row; the factors follow the rows.
#include "common.cl"
#include "to_half.args"
#include "reduce.cl"
#include "half_pairs.cl"

KERNEL(to_half) {
  __local float shared[THREADS];
  const uint count = ROWS_OF(rows);
  for (uint row = GROUP; row < count; row += GROUPS) {
    __global const float2* x = AT(float2, x) + (size_t)row * (push.columns / 2);
    __global uint* y = AT(uint, y) + (size_t)row * kParts * (push.padded / 2);
    float most = 0.0f;
    FOR_MINE(i, push.columns / 2) most = fmax(most, fmax(fabs(x[i].x), fabs(x[i].y)));
    most = GroupMax(most, shared);
    // The exponent of the largest value goes to 2^8: far from both ends of f16.
    const int exponent = clamp((int)(as_uint(most) >> 23) - 127 - 8, -100, 100);
    const float down = as_float((uint)(127 - exponent) << 23);
    FOR_MINE(i, push.padded / 2) {
      const float2 pair = i < push.columns / 2 ? x[i] * down : (float2)(0.0f);
      const uint high = HalfPair(pair.x, pair.y);
      y[i] = high;
#if kParts == 2
      y[push.padded / 2 + i] =
          HalfPair(pair.x - HalfToFloat(high & 0xFFFF), pair.y - HalfToFloat(high >> 16));
#endif
    }
    if (ME == 0) AT(float, factors)[row] = as_float((uint)(127 + exponent) << 23);
  }
}

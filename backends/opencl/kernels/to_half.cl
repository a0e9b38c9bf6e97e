// Rows of f32, clamped first if there is a range, as f16 times a power of two of their own, so that
// the largest value of a row fits f16 and the smallest lose little. With two parts a value is the
// sum of two f16 numbers, which lose 2^-22 of it. One work-group or subgroup for each row; the
// factors follow the rows.
#include "common.cl"
#include "to_half.args"
#include "math.kernel"
#include "row_lanes.cl"
#include "half_pairs.cl"

KERNEL(to_half) {
  __local float shared[THREADS];
  const bool bounded = !IS_NULL(range);
  const float low = bounded ? AT(float, range)[0] : 0.0f;
  const float high = bounded ? AT(float, range)[1] : 0.0f;
  const uint pairs = push.columns / 2, padded = push.padded / 2;
  FOR_MY_ROWS(row, ROWS_OF(rows)) {
    __global const float2* x = AT(float2, x) + (size_t)row * pairs;
    __global uint* y = AT(uint, y) + (size_t)row * kParts * padded;
    float most = 0.0f;
    FOR_MINE(i, pairs) {
      float2 pair = x[i];
      if (bounded) pair = (float2)(Clamped(pair.x, low, high), Clamped(pair.y, low, high));
      most = fmax(most, fmax(fabs(pair.x), fabs(pair.y)));
    }
    most = RowMax(most, shared);
    // The exponent of the largest value goes to 2^8: far from both ends of f16.
    const int exponent = clamp((int)(as_uint(most) >> 23) - 127 - 8, -100, 100);
    const float down = as_float((uint)(127 - exponent) << 23);
    FOR_MINE(i, padded) {
      float2 pair = i < pairs ? x[i] : (float2)(0.0f);
      if (bounded && i < pairs) {
        pair = (float2)(Clamped(pair.x, low, high), Clamped(pair.y, low, high));
      }
      pair *= down;
      const uint high_half = HalfPair(pair.x, pair.y);
      y[i] = high_half;
#if kParts == 2
      y[padded + i] =
          HalfPair(pair.x - HalfToFloat(high_half & 0xFFFF), pair.y - HalfToFloat(high_half >> 16));
#endif
    }
    if (LANE == 0) AT(float, factors)[row] = as_float((uint)(127 + exponent) << 23);
  }
}

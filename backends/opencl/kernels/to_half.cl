// Rows of f32, gated and clamped first if there are gates and a range, as f16 times a power of two
// of their own, so that the largest value of a row fits f16 and the smallest lose little. With two
// parts a value is the sum of two f16 numbers, which lose 2^-21 of it. One work-group or subgroup
// for each row; the factors follow the rows.
#include "common.cl"
#include "to_half.args"
#include "math.kernel"
#include "row_lanes.kernel"
#include "half_pairs.cl"

typedef struct {
  bool gated, bounded;
  float low, high;
} Change;

// Two values of a row after the changes, `x` and `up` being those before.
float2 Changed(float2 x, float2 up, Change change) {
  if (change.gated) x = (float2)(GeluTanh(x.x), GeluTanh(x.y)) * up;
  if (!change.bounded) return x;
  return (float2)(Clamped(x.x, change.low, change.high), Clamped(x.y, change.low, change.high));
}

KERNEL(to_half) {
  Change change = {!IS_NULL(up), !IS_NULL(range), 0.0f, 0.0f};
  if (change.bounded) {
    change.low = AT(float, range)[0];
    change.high = AT(float, range)[1];
  }
  const uint pairs = push.columns / 2, padded = push.padded / 2;
  FOR_MY_ROWS(row, ROWS_OF(rows)) {
    __global const float2* x = AT(float2, x) + (size_t)row * pairs;
    __global const float2* up = change.gated ? AT(float2, up) + (size_t)row * pairs : x;
    __global uint* y = AT(uint, y) + (size_t)row * kParts * padded;
    float most = 0.0f;
    FOR_MINE(i, pairs) {
      const float2 pair = Changed(x[i], up[i], change);
      most = fmax(most, fmax(fabs(pair.x), fabs(pair.y)));
    }
    most = RowMax(LOCAL most);
    // The exponent of the largest value goes to 2^8: far from both ends of f16.
    const int exponent = clamp((int)(as_uint(most) >> 23) - 127 - 8, -100, 100);
    const float down = as_float((uint)(127 - exponent) << 23);
    FOR_MINE(i, padded) {
      const float2 pair = i < pairs ? Changed(x[i], up[i], change) * down : (float2)(0.0f);
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

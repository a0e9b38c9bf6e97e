// Moves and converts elements: copy, slice, concat (twice), reshape, cast, where, gather_last.
#include "common.cl"

#define kOp C1    // as enum Move in gpu/ops_structure.cc
#define kFrom C2  // element type, or for moves the size in bytes
#define kTo C3    // of the result of a cast

typedef struct {
  Pointer step, x, b, condition, y;
  Extent rows;
  uint inner;  // elements that are moved of each row
  uint x_stride, x_offset, y_stride, y_offset;
} Push;

#define kMove 0
#define kCast 1
#define kWhere 2
#define kGatherLast 3

// Towards zero, at most the ends of the range, 0 for not-a-number.
int Truncate(float x) {
  if (IS_NAN(x)) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  if (x <= -2147483648.0f) return -2147483647 - 1;
  return (int)x;
}

#if kOp == kCast
#if kFrom == kF32 || kFrom == kI32
#define From uint
#else
#define From ushort
#endif
#if kTo == kF32 || kTo == kI32
#define To uint
#else
#define To ushort
#endif
To Cast(From bits) {
#if kFrom == kTo
  return bits;
#else
#if kFrom == kI32
  const float value = convert_float_rte((int)bits);
#elif kFrom == kF32
  const float value = as_float(bits);
#elif kFrom == kF16
  const float value = HalfToFloat(bits);
#else
  const float value = BFloat16ToFloat(bits);
#endif
#if kTo == kI32
  return as_uint(Truncate(value));
#elif kTo == kF32
  return as_uint(value);
#elif kTo == kF16
  return (ushort)FloatToHalf(value);
#else
  return (ushort)FloatToBFloat16(value);
#endif
#endif
}
#elif kFrom == 4 || kOp == kGatherLast
#define From uint
#define To uint
#else
#define From ushort
#define To ushort
#endif

KERNEL move(BUFFER(step) BUFFER(x) BUFFER(b) BUFFER(condition) BUFFER(y) const Push push) {
  __global const From *x = AT(From, x);
  __global To *y = AT(To, y);
  FOR_EACH(i, ROWS_OF(rows) * push.inner) {
#if kOp == kMove
    const uint row = i / push.inner, column = i % push.inner;
    y[row * push.y_stride + push.y_offset + column] = x[row * push.x_stride + push.x_offset + column];
#elif kOp == kCast
    y[i] = Cast(x[i]);
#elif kOp == kWhere
    const bool chosen = (AT(uint, condition)[i] & 0x7FFFFFFFu) != 0u;
    y[i] = chosen ? x[i] : AT(From, b)[i];
#else
    // In place of the result's stride, the op for a failure.
    const int index = AT(int, b)[i];
    if (index >= (int)push.x_stride) {
      AT(Step, step)->failed_op = push.y_stride;
    } else {
      y[i] = index >= 0 ? x[i * push.x_stride + (uint)index] : kFrom == kI32 ? 0xFFFFFFFFu : 0x7FC00000u;
    }
#endif
  }
}

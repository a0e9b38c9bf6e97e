// Moves and converts elements: copy, slice, concat (twice), pad, reshape, cast, where, gather_last.
#include "common.cl"
#include "strided_copy.args"

#define kCopy 0

// Towards zero, at most the ends of the range, 0 for not-a-number.
int Truncate(float x) {
  if (IsNan(x)) return 0;
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

KERNEL(strided_copy) {
  __global const From* x = AT(From, x);
  __global To* y = AT(To, y);
  FOR_EACH(i, ROWS_OF(rows) * push.inner) {
#if kOp == kCopy
    const uint row = i / push.inner, column = i % push.inner;
    y[row * push.y_stride + push.y_offset + column] =
        x[row * push.x_stride + push.x_offset + column];
#elif kOp == kCast
    y[i] = Cast(x[i]);
#elif kOp == kPad
    const uint from = i % push.inner - push.x_offset;  // beyond every column if that is negative
    y[i] = from < push.x_stride ? x[i / push.inner * push.x_stride + from] : 0;
#elif kOp == kWhere
    const bool chosen = (AT(uint, condition)[i] & 0x7FFFFFFFu) != 0u;
    y[i] = chosen ? x[i] : AT(From, b)[i];
#else
    const int index = AT(int, b)[i];
    if (index >= (int)push.x_stride) {
      FAIL();
    } else {
      y[i] = index >= 0      ? x[i * push.x_stride + (uint)index]
             : kFrom == kI32 ? 0xFFFFFFFFu
                             : 0x7FC00000u;
    }
#endif
  }
}

// One element at a time: unary, binary with broadcast, scale, affine, select, geglu, softcap.
#include "common.cl"
#include "pointwise.args"
#include "math.cl"

float Unary(float x) {
  switch (kFn) {
    case 0:
      return -x;
    case 1:
      return fabs(x);
    case 2:
      return Exp(x);
    case 3:
      return Log(x);
    case 4:
      return IS_NAN(x) || x < 0.0f ? kNan : sqrt(x);
    case 5:
      return IS_NAN(x) || x < 0.0f ? kNan
             : x == 0.0f           ? kInfinity
             : x == kInfinity      ? 0.0f
                                   : 1.0f / sqrt(x);
    case 6:
      return Tanh(x);
    case 7:
      return IS_NAN(x) ? x : Sigmoid(x);
    case 8:
      return IS_NAN(x) ? x : GeluTanh(x);
    case 9:
      return IS_NAN(x) ? x : x * Sigmoid(x);
    case 11:
      return IS_NAN(x) ? x : GeluTanhGrad(x);
    default:
      return x * x;
  }
}

float Binary(float a, float b) {
  const bool ordered = !IS_NAN(a) && !IS_NAN(b);
  switch (kFn) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a / b;
    case 4:
      return a < b ? a : b;
    case 5:
      return a > b ? a : b;
    case 6:
      return ordered && a < b ? 1.0f : 0.0f;
    case 7:
      return ordered && a <= b ? 1.0f : 0.0f;
    default:
      return ordered && a == b ? 1.0f : 0.0f;
  }
}

uint OffsetOfB(const Push* push, uint i) {
  const uint i3 = i % push->size_3, rest3 = i / push->size_3;
  const uint i2 = rest3 % push->size_2, rest2 = rest3 / push->size_2;
  return (rest2 / push->size_1) * push->stride_0 + (rest2 % push->size_1) * push->stride_1 +
         i2 * push->stride_2 + i3 * push->stride_3;
}

KERNEL pointwise(ARGUMENTS) {
  __global const float* b = AT(float, b);
  FOR_EACH(i, ROWS_OF(rows) * push.inner) {
    const float a = AT(float, a)[i];
#if kOp == kUnary
    const float y = Unary(a);
#elif kOp == kBinary
    const float y = Binary(a, b[OffsetOfB(&push, i)]);
#elif kOp == kScale
    const float y = a * b[push.stride_3 == 0 ? 0 : i % push.size_3];
#elif kOp == kAffine
    const float y = a * push.f0 + push.f1;
#elif kOp == kSelect
    // a is the condition; not-a-number is true
    const float y = (as_uint(a) & 0x7FFFFFFFu) != 0u ? b[i] : push.f0;
#elif kOp == kGeGlu
    const float y = GeluTanh(a) * b[i];
#else
    const float y = IS_NAN(a) ? a : push.f0 * Tanh(a / push.f0);
#endif
    AT(float, y)[i] = y;
  }
}

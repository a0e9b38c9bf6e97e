// One element at a time: unary, binary with broadcast, scale, affine, select, geglu, softcap.
#include "common.cl"
#include "math.cl"

#define kOp C1  // as enum Pointwise in gpu/ops_pointwise.cc
#define kFn C2  // rl_unary or rl_binary

typedef struct {
  Pointer step, a, b, y;
  Extent rows;
  uint inner;  // elements of a row
  uint dims[3], reserved;  // the three inner dimensions, 1 where there are fewer
  uint strides[4];  // of b in elements, 0 where it is broadcast
  float f0, f1;
} Push;

#define kUnary 0
#define kBinary 1
#define kScale 2
#define kAffine 3
#define kSelect 4
#define kGeGlu 5
#define kSoftcap 6

float Unary(float x) {
  switch (kFn) {
    case 0: return -x;
    case 1: return fabs(x);
    case 2: return Exp(x);
    case 3: return Log(x);
    case 4: return IS_NAN(x) || x < 0.0f ? kNan : sqrt(x);
    case 5: return IS_NAN(x) || x < 0.0f ? kNan : x == 0.0f ? kInfinity : x == kInfinity ? 0.0f : 1.0f / sqrt(x);
    case 6: return Tanh(x);
    case 7: return IS_NAN(x) ? x : Sigmoid(x);
    case 8: return IS_NAN(x) ? x : GeluTanh(x);
    case 9: return IS_NAN(x) ? x : x * Sigmoid(x);
    default: return x * x;
  }
}

float Binary(float a, float b) {
  const bool ordered = !IS_NAN(a) && !IS_NAN(b);
  switch (kFn) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a / b;
    case 4: return a < b ? a : b;
    case 5: return a > b ? a : b;
    case 6: return ordered && a < b ? 1.0f : 0.0f;
    case 7: return ordered && a <= b ? 1.0f : 0.0f;
    default: return ordered && a == b ? 1.0f : 0.0f;
  }
}

uint OffsetOfB(const Push *push, uint i) {
  const uint i3 = i % push->dims[2], rest3 = i / push->dims[2];
  const uint i2 = rest3 % push->dims[1], rest2 = rest3 / push->dims[1];
  return (rest2 / push->dims[0]) * push->strides[0] + (rest2 % push->dims[0]) * push->strides[1] +
         i2 * push->strides[2] + i3 * push->strides[3];
}

KERNEL pointwise(BUFFER(step) BUFFER(a) BUFFER(b) BUFFER(y) const Push push) {
  __global const float *b = AT(float, b);
  FOR_EACH(i, ROWS_OF(rows) * push.inner) {
    const float a = AT(float, a)[i];
#if kOp == kUnary
    const float y = Unary(a);
#elif kOp == kBinary
    const float y = Binary(a, b[OffsetOfB(&push, i)]);
#elif kOp == kScale
    const float y = a * b[push.strides[3] == 0 ? 0 : i % push.dims[2]];
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

#version 460
// One element at a time: unary, binary with broadcast, scale, affine, select, geglu, softcap.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "pointwise.args.glsl"
#include "math.glsl"

float Unary(float x) {
  switch (kFn) {
    case 0:
      return -x;
    case 1:
      return abs(x);
    case 2:
      return Exp(x);
    case 3:
      return Log(x);
    case 4:
      return IsNan(x) || x < 0.0 ? kNan : sqrt(x);
    case 5:
      return IsNan(x) || x < 0.0 ? kNan
             : x == 0.0          ? kInfinity
             : x == kInfinity    ? 0.0
                                 : 1.0 / sqrt(x);
    case 6:
      return Tanh(x);
    case 7:
      return IsNan(x) ? x : Sigmoid(x);
    case 8:
      return IsNan(x) ? x : GeluTanh(x);
    case 9:
      return IsNan(x) ? x : x * Sigmoid(x);
    case 11:
      return IsNan(x) ? x : GeluTanhGrad(x);
    default:
      return x * x;
  }
}

float Binary(float a, float b) {
  const bool ordered = !IsNan(a) && !IsNan(b);
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
      return ordered && a < b ? 1.0 : 0.0;
    case 7:
      return ordered && a <= b ? 1.0 : 0.0;
    default:
      return ordered && a == b ? 1.0 : 0.0;
  }
}

uint OffsetOfB(uint i) {
  const uint i3 = i % p.size_3;
  const uint rest3 = i / p.size_3;
  const uint i2 = rest3 % p.size_2;
  const uint rest2 = rest3 / p.size_2;
  return (rest2 / p.size_1) * p.stride_0 + (rest2 % p.size_1) * p.stride_1 + i2 * p.stride_2 +
         i3 * p.stride_3;
}

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.inner;
  for (uint i = INVOCATION; i < count; i += GROUPS.x * gl_WorkGroupSize.x) {
    const float a = F32(p.a).v[i];
    float y;
    if (kOp == kUnary) {
      y = Unary(a);
    } else if (kOp == kBinary) {
      y = Binary(a, F32(p.b).v[OffsetOfB(i)]);
    } else if (kOp == kScale) {
      y = a * F32(p.b).v[p.stride_3 == 0 ? 0 : i % p.size_3];
    } else if (kOp == kAffine) {
      y = a * p.f0 + p.f1;
    } else if (kOp == kSelect) {
      // a is the condition; not-a-number is true
      y = (floatBitsToUint(a) & 0x7FFFFFFFu) != 0u ? F32(p.b).v[i] : p.f0;
    } else if (kOp == kGeGlu) {
      y = GeluTanh(a) * F32(p.b).v[i];
    } else {
      y = IsNan(a) ? a : p.f0 * Tanh(a / p.f0);
    }
    F32(p.y).v[i] = y;
  }
}

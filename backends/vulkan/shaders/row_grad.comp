#version 460
// One workgroup for each row of the last dimension: the derivatives of softmax and rms_norm.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "row_grad.args.glsl"
#include "reduce.glsl"

// Neither 0 nor below every normal number; NaN is something.
bool HasMass(float y) { return (floatBitsToUint(y) & 0x7FFFFFFFu) >= 0x00800000u; }

void SoftmaxGrad(uint first) {
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
    const float y = F32(p.x).v[first + i];
    if (HasMass(y)) sum += y * F32(p.dy).v[first + i];
  }
  sum = WorkgroupSum(sum);
  for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
    const float y = F32(p.x).v[first + i];
    float dx = 0.0;
    if (HasMass(y)) dx = y * (F32(p.dy).v[first + i] - sum);
    F32(p.dx).v[first + i] = dx;
  }
}

// dy times the weight
float Upstream(uint first, uint i) {
  const float dy = F32(p.dy).v[first + i];
  return IsNull(p.weight) ? dy : dy * F32(p.weight).v[i];
}

// r (g - x r^2 mean(g x))
void RmsNormGrad(uint first) {
  float squares = 0.0, products = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
    const float x = F32(p.x).v[first + i];
    squares += x * x;
    products += Upstream(first, i) * x;
  }
  const float n = float(p.columns);
  const float r = 1.0 / sqrt(WorkgroupSum(squares) / n + p.eps);
  const float share = r * r * (WorkgroupSum(products) / n);
  for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
    F32(p.dx).v[first + i] = r * (Upstream(first, i) - F32(p.x).v[first + i] * share);
  }
}

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    if (kOp == kSoftmaxGrad) {
      SoftmaxGrad(row * p.columns);
    } else {
      RmsNormGrad(row * p.columns);
    }
  }
}

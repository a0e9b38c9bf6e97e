#version 460
// One workgroup for each row of logits: the cross entropy of its target, the derivative, or both.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "loss.args.glsl"
#include "math.kernel"
#include "reduce.glsl"

uint first;  // of the row, in elements

float X(uint i) {
  const float x = F32(p.x).v[first + i];
  return kOp != kHead || p.cap == 0.0 || IsNan(x) ? x : p.cap * Tanh(x / p.cap);
}

// Softmax statistics: the maximum (0 in a row of only -infinity), the sum of exponentials (0 in
// such a row), and whether both are numbers.
struct Parts {
  float shift;
  float sum;
  bool plain;
};
Parts PartsOfSoftmax() {
  float most = -kInfinity;
  float bad = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
    const float x = X(i);
    if (IsNan(x) || x == kInfinity) {
      bad = 1.0;
    } else {
      most = max(most, x);
    }
  }
  Parts parts;
  most = WorkgroupMax(most);
  parts.plain = WorkgroupMax(bad) == 0.0;
  parts.shift = most == -kInfinity ? 0.0 : most;
  float sum = 0.0;
  for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
    sum += Exp(X(i) - parts.shift);
  }
  parts.sum = WorkgroupSum(sum);
  return parts;
}

// ln(sum) + (max - logit), in this order: the logarithm is small beside both.
float Loss(Parts parts, float logit) {
  if (!parts.plain) return kNan;
  if (parts.sum == 0.0 || logit == -kInfinity) return kInfinity;
  precise const float distance = parts.shift - logit;
  return Log(parts.sum) + distance;
}

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    first = row * p.columns;
    const int target = I32(p.targets).v[row];
    const bool counts = target >= 0 && uint(target) < p.columns;
    Parts parts = Parts(0.0, 1.0, true);
    if (counts) parts = PartsOfSoftmax();
    if (kOp == kLoss) {
      if (gl_LocalInvocationID.x == 0) {
        F32(p.y).v[row] = counts ? Loss(parts, X(uint(target))) : 0.0;
      }
      continue;
    }
    const float factor = F32(p.factor).v[0];
    const float divisor = parts.sum == 0.0 ? 1.0 : parts.sum;
    for (uint i = gl_LocalInvocationID.x; i < p.columns; i += gl_WorkGroupSize.x) {
      float y = 0.0;
      if (counts) {
        const float x = X(i);
        y = Exp(x - parts.shift) / divisor;
        y = factor * (i == uint(target) ? y - 1.0 : y);
        if (kOp == kHead) {
          // y may be x: this invocation alone reads the logit of the target from here on.
          if (i == uint(target)) F32(p.loss).v[row] = Loss(parts, x);
          if (p.cap > 0.0) y *= 1.0 - x / p.cap * (x / p.cap);
        }
        if (!parts.plain) y = kNan;
      }
      F32(p.y).v[first + i] = y;
    }
    if (kOp == kHead && !counts && gl_LocalInvocationID.x == 0) F32(p.loss).v[row] = 0.0;
  }
}

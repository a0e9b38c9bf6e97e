#version 460
// Ops that need running sums along a row: cumsum, the nucleus mask, the draw of a category. One
// workgroup for each row; each invocation takes a run of consecutive columns.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "scan.args.glsl"
#include "math.kernel"
#include "reduce.glsl"
#define Summed float
#include "prefix_sum.glsl"

shared uint shared_first;
shared int shared_last;

uint me, begin, end, first;

float X(uint i) {
  const float x = F32(p.x).v[first + i];
  return kOp != kCumSum && IsNan(x) ? -kInfinity : x;
}
float Mass(uint i, float most) {
  const float x = X(i);
  if (kOp == kCumSum) return x;
  return x == -kInfinity ? 0.0 : Exp(x - most);
}

void Draw(uint row, float most, float before, float total) {
  if (me == 0) {
    shared_first = 0xFFFFFFFFu;
    shared_last = -1;
  }
  barrier();
  const float target = F32(p.u).v[row] * total;
  float running = before;
  for (uint i = begin; i < end; ++i) {
    const float mass = Mass(i, most);
    running += mass;
    if (mass > 0.0) {
      atomicMax(shared_last, int(i));
      if (running > target) {
        atomicMin(shared_first, i);
        break;
      }
    }
  }
  barrier();
  // `break` leaves later columns of this run out of the last one, which then does not count.
  if (me == 0) I32(p.y).v[row] = shared_first != 0xFFFFFFFFu ? int(shared_first) : shared_last;
}

void main() {
  me = gl_LocalInvocationIndex;
  const uint count = At(p.rows, Step(p.step));
  const uint share = (p.columns + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
  begin = min(me * share, p.columns);
  end = min(begin + share, p.columns);
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    first = row * p.columns;
    float most = 0.0;
    if (kOp != kCumSum) {
      most = -kInfinity;
      for (uint i = begin; i < end; ++i) most = max(most, X(i));
      most = WorkgroupMax(most);
    }
    float sum = 0.0;
    for (uint i = begin; i < end; ++i) sum += Mass(i, most);
    float total;
    float running = PrefixSum(sum, total);
    if (kOp == kCategorical) {
      Draw(row, most, running, total);
      continue;
    }
    for (uint i = begin; i < end; ++i) {
      const float mass = Mass(i, most);
      if (kOp == kCumSum) {
        running += mass;
        F32(p.y).v[first + i] = running;
      } else {
        const bool kept = i == 0 || p.top_p >= 1.0 || running < p.top_p * total;
        F32(p.y).v[first + i] = kept ? X(i) : -kInfinity;
        running += mass;
      }
    }
  }
}

#version 460
// Rotary embedding, after an optional RMS norm of each head: the two follow each other in a model
// and read the same few values. One workgroup for each head of each row; without the norm,
// invocations take a pair each, of any head.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rope.args.glsl"
#include "math.kernel"
#include "reduce.glsl"

void Store(uint i, float value) {
  if (kHalf == 0) {
    F32(p.y).v[i] = value;
  } else {
    U16(p.y).v[i] = uint16_t(FloatToHalf(value));
  }
}

// The dimension of the i-th value of a head that is not rotated.
uint Other(uint i) { return i < p.first ? i : i + 2 * p.half_rot; }

// Cosine and sine of the angle of pair `i` of a head.
vec2 TurnOf(uint head, uint i) {
  const uint pos = uint(I32(p.pos).v[head / p.heads]);
  return CosSin(Turns(pos, uvec2(U32(p.rates).v[2 * i], U32(p.rates).v[2 * i + 1])));
}

void Rotate(uint at, float a, float b, vec2 turn) {
  const vec2 turned = Turned(a, b, turn);
  Store(at, turned.x);
  Store(at + p.half_rot, turned.y);
}

void RotatePairs(uint heads) {
  const uint all = GROUPS.x * gl_WorkGroupSize.x, others = p.dim - 2 * p.half_rot;
  for (uint pair = INVOCATION; pair < heads * p.half_rot; pair += all) {
    const uint head = pair / p.half_rot, i = pair % p.half_rot, at = head * p.dim + p.first + i;
    Rotate(at, F32(p.x).v[at], F32(p.x).v[at + p.half_rot], TurnOf(head, i));
  }
  for (uint other = INVOCATION; other < heads * others; other += all) {
    const uint at = other / others * p.dim + Other(other % others);
    Store(at, F32(p.x).v[at]);
  }
}

void main() {
  const uint count = At(p.rows, Step(p.step)) * p.heads;
  if (kNorm == 0) {
    RotatePairs(count);
    return;
  }
  const bool weighted = !IsNull(p.weight);
  for (uint head = GROUP.x; head < count; head += GROUPS.x) {
    const uint first = head * p.dim;
    float sum = 0.0;
    FOR_MINE(i, p.dim) {
      const float x = F32(p.x).v[first + i];
      sum += x * x;
    }
    const float factor = 1.0 / sqrt(WorkgroupSum(sum) / float(p.dim) + p.eps);
    FOR_MINE(i, p.half_rot) {
      const uint low = p.first + i, high = low + p.half_rot;
      float a = F32(p.x).v[first + low] * factor;
      float b = F32(p.x).v[first + high] * factor;
      if (weighted) {
        a *= F32(p.weight).v[low];
        b *= F32(p.weight).v[high];
      }
      Rotate(first + low, a, b, TurnOf(head, i));
    }
    FOR_MINE(i, p.dim - 2 * p.half_rot) {
      const uint other = Other(i);
      float a = F32(p.x).v[first + other] * factor;
      if (weighted) a *= F32(p.weight).v[other];
      Store(first + other, a);
    }
  }
}

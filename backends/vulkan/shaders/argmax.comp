#version 460
// The lowest index of the largest value of each row, or of parts of it, or among some of its
// elements. One workgroup for each row or part.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "argmax.args.glsl"
#include "order.kernel"

shared uint shared_key[1024];
shared uint shared_index[1024];

void main() {
  const uint count = At(p.rows, Step(p.step));
  const uint me = gl_LocalInvocationIndex;
  for (uint item = GROUP.x; item < count * p.parts; item += GROUPS.x) {
    const uint row = item / p.parts, first = item % p.parts * p.span;
    uint best = 0, at = 0xFFFFFFFFu;
    for (uint i = me; i < p.span; i += gl_WorkGroupSize.x) {
      const uint element = IsNull(p.among) ? first + i : U32(p.among).v[row * p.span + i];
      const uint key = KeyOf(F32(p.x).v[row * p.columns + element]);
      if (key > best || at == 0xFFFFFFFFu) {
        best = key;
        at = element;
      }
    }
    barrier();
    shared_key[me] = best;
    shared_index[me] = at;
    barrier();
    for (uint width = gl_WorkGroupSize.x / 2; width > 0; width /= 2) {
      if (me < width) {
        const uint key = shared_key[me + width], index = shared_index[me + width];
        if (key > shared_key[me] || (key == shared_key[me] && index < shared_index[me])) {
          shared_key[me] = key;
          shared_index[me] = index;
        }
      }
      barrier();
    }
    if (me == 0) U32(p.y).v[item] = shared_index[0];
  }
}

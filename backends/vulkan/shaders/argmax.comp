#version 460
// The lowest index of the largest value of each row. One workgroup for each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "order.glsl"

PUSH Push {
  uvec2 step, x, y;
  Extent rows;
  uint columns;
} AS_P;

shared uint shared_key[1024];
shared uint shared_index[1024];

void main() {
  const uint count = At(p.rows, Step(p.step));
  const uint me = gl_LocalInvocationIndex;
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    uint best = 0, at = 0xFFFFFFFFu;
    for (uint i = me; i < p.columns; i += gl_WorkGroupSize.x) {
      const uint key = KeyOf(F32(p.x).v[row * p.columns + i]);
      if (key > best || at == 0xFFFFFFFFu) {
        best = key;
        at = i;
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
    if (me == 0) U32(p.y).v[row] = shared_index[0];
  }
}

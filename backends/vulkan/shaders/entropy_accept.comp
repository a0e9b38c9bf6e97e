#version 460
// Accepts rows in ascending order of entropy while the float64 sum of those before is within the
// bound. One workgroup.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "entropy_accept.args.glsl"
#include "order.kernel"

#include "sort.glsl"

void main() {
  const uint rows = At(p.rows, Step(p.step));
  for (uint i = me; i < p.room; i += size) {
    uint key = 0;
    if (i < rows) {
      const float x = F32(p.x).v[i];
      key = IsNan(x) ? 1 : ~KeyOf(x);
    }
    Put(i, uvec2(key, i));
  }
  Sync();
  Sort();
  if (me != 0) return;
  double sum = 0.0;
  for (uint i = 0; i < rows; ++i) {
    const uint row = Get(i).y;
    const float x = F32(p.x).v[row];
    F32(p.y).v[row] = !IsNan(x) && sum <= double(p.bound) ? 1.0 : 0.0;
    if (!IsNan(x)) sum += double(x);
  }
}

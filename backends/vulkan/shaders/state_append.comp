#version 460
// Stores rows at [slot, pos mod capacity] unless a later row of the step takes the same place. One
// workgroup for each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "state_append.args.glsl"

shared uint shared_taken;

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    const int slot = I32(p.slot).v[row];
    const int pos = I32(p.pos).v[row];
    if (slot < 0 || slot >= int(p.slots) || pos < 0) {
      Step(p.step).failed_op = p.op;
      continue;
    }
    barrier();
    if (gl_LocalInvocationID.x == 0) shared_taken = 0;
    barrier();
    for (uint i = row + 1 + gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
      const int other = I32(p.pos).v[i];
      const bool same = I32(p.slot).v[i] == slot && other >= 0 &&
                        uint(other) % p.capacity == uint(pos) % p.capacity;
      if (same) shared_taken = 1;
    }
    barrier();
    if (shared_taken != 0) continue;
    const uint place = uint(slot) * p.capacity + uint(pos) % p.capacity;
    const uvec2 to = AdvanceBy(p.state, place, p.inner * kBytes);
    const uvec2 from = AdvanceBy(p.x, row, p.inner * kBytes);
    for (uint i = gl_LocalInvocationID.x; i < p.inner; i += gl_WorkGroupSize.x) {
      if (kBytes == 4) {
        U32(to).v[i] = U32(from).v[i];
      } else {
        U16(to).v[i] = U16(from).v[i];
      }
    }
  }
}

#version 460
// Penalties on tokens seen in a window of positions. y already holds a copy of the logits. One
// workgroup for each row.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "penalties.args.glsl"

int pos, slot, old, last_n;

// Entry e of the window: positions ending at the last old one, then the fresh rows. -1: none.
int TokenAt(int e) {
  if (e < last_n) {
    const int at = old - last_n + e;
    const bool there = at >= 0 && at >= old - int(p.capacity) && at > pos - last_n && at <= pos;
    return there ? I32(p.history).v[uint(slot) * p.capacity + uint(at) % p.capacity] : -1;
  }
  const uint row = uint(e - last_n);
  const int at = I32(p.kv_pos).v[row];
  const bool there = I32(p.kv_slot).v[row] == slot && at > pos - last_n && at <= pos;
  return there ? I32(p.tokens).v[row] : -1;
}

void Penalise(uint row) {
  pos = I32(p.q_pos).v[row];
  slot = I32(p.q_slot).v[row];
  if (slot < 0 || slot >= int(p.slots)) {
    Step(p.step).failed_op = p.op;
    return;
  }
  old = I32(p.past).v[slot];
  float repeat = kRepeat, frequency = kFrequency, presence = kPresence;
  last_n = kLastN;
  if (!IsNull(p.settings)) {
    repeat = F32(p.settings).v[row * 4];
    frequency = F32(p.settings).v[row * 4 + 1];
    presence = F32(p.settings).v[row * 4 + 2];
    last_n = int(clamp(F32(p.settings).v[row * 4 + 3], 0.0, float(p.capacity)));
    if (last_n == 0) return;
  }
  const int entries = last_n + int(At(p.fresh, Step(p.step)));
  for (int e = int(gl_LocalInvocationIndex); e < entries; e += int(gl_WorkGroupSize.x)) {
    const int token = TokenAt(e);
    if (token < 0 || token >= int(p.columns)) continue;
    uint seen = 0;
    bool is_first = true;
    for (int other = 0; other < entries; ++other) {
      if (TokenAt(other) != token) continue;
      ++seen;
      if (other < e) is_first = false;
    }
    if (!is_first) continue;
    float z = F32(p.x).v[row * p.columns + uint(token)];
    z = z > 0.0 ? z / repeat : z * repeat;
    z -= float(seen) * frequency + presence;
    F32(p.y).v[row * p.columns + uint(token)] = z;
  }
}

void main() {
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) Penalise(row);
}

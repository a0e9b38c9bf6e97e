#version 460
// Draws a column of each row with the row's settings: filters as in typical_p, scan (the nucleus)
// and rows (min_p), one after another on a copy of the row, then the draw of scan. One workgroup
// for each row; each invocation takes a run of consecutive columns. Sums are added in the order of
// those shaders.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "row_sample.args.glsl"
#include "math.kernel"
#include "order.kernel"
#include "reduce.glsl"
#define Summed float
#include "prefix_sum.glsl"
#include "sort.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) coherent BUFFER Logits { float v[]; };

shared uint shared_first;
shared int shared_last;

uint begin, end, first;

float Kept(uint i) { return Logits(p.kept).v[first + i]; }
void Keep(uint i, float x) { Logits(p.kept).v[first + i] = x; }
void Publish() {
  memoryBarrierBuffer();
  barrier();
}

float Most() {
  float most = -kInfinity;
  for (uint i = begin; i < end; ++i) most = max(most, Kept(i));
  return WorkgroupMax(most);
}
float Mass(float x, float most) { return x == -kInfinity ? 0.0 : Exp(x - most); }

void TypicalP(float top_p) {
  const float most = Most();
  if (most == -kInfinity) return;
  float sum = 0.0, weighted = 0.0;
  for (uint i = me; i < p.columns; i += size) {
    const float z = Kept(i) - most;
    const float e = Exp(z);
    sum += e;
    if (e > 0.0) weighted += e * z;
  }
  sum = WorkgroupSum(sum);
  weighted = WorkgroupSum(weighted);
  const float mean = weighted / sum;
  for (uint i = me; i < p.room; i += size) {
    uint key = 0;
    if (i < p.columns) {
      const float x = Kept(i);
      key = ~KeyOf(x == -kInfinity ? kInfinity : abs(mean - (x - most)));
    }
    Put(i, uvec2(key, i));
  }
  Sync();
  Sort();
  float part = 0.0;
  for (uint i = begin; i < end; ++i) part += Exp(Kept(Get(i).y) - most);
  float all;
  float running = PrefixSum(part, all);
  for (uint i = begin; i < end; ++i) {
    const uint column = Get(i).y;
    const float x = Kept(column);
    if (i > 0 && running >= top_p * sum) Keep(column, -kInfinity);
    running += Exp(x - most);
  }
  Publish();
}

void TopP(float top_p) {
  const float most = Most();
  float sum = 0.0;
  for (uint i = begin; i < end; ++i) sum += Mass(Kept(i), most);
  float total;
  float running = PrefixSum(sum, total);
  for (uint i = begin; i < end; ++i) {
    const float x = Kept(i);
    if (i > 0 && running >= top_p * total) Keep(i, -kInfinity);
    running += Mass(x, most);
  }
}

void MinP(float log_p) {
  const float limit = Most() + log_p;
  for (uint i = begin; i < end; ++i) {
    if (!(Kept(i) >= limit)) Keep(i, -kInfinity);
  }
}

void Scale(float scale) {
  for (uint i = begin; i < end; ++i) {
    precise const float x = Kept(i) * scale;
    Keep(i, x);
  }
}

// Marks the first column with the largest logit.
void Best() {
  const float most = Most();
  for (uint i = begin; i < end; ++i) {
    if (most > -kInfinity && Kept(i) == most) {
      atomicMin(shared_first, i);
      break;
    }
  }
}

void Draw(float u) {
  const float most = Most();
  float sum = 0.0;
  for (uint i = begin; i < end; ++i) sum += Mass(Kept(i), most);
  float total;
  float running = PrefixSum(sum, total);
  const float target = u * total;
  for (uint i = begin; i < end; ++i) {
    const float mass = Mass(Kept(i), most);
    running += mass;
    if (mass > 0.0) {
      atomicMax(shared_last, int(i));
      if (running > target) {
        atomicMin(shared_first, i);
        break;
      }
    }
  }
}

void Sample(uint row) {
  const float scale = F32(p.settings).v[row * 5], top_k = F32(p.settings).v[row * 5 + 1];
  const float top_p = F32(p.settings).v[row * 5 + 2], log_min_p = F32(p.settings).v[row * 5 + 3];
  const float typical_p = F32(p.settings).v[row * 5 + 4];
  const bool best = scale == 0.0;
  const bool few = !best && top_k > 0.0 && top_k < float(p.columns);
  const uint count = few ? uint(top_k) : p.columns;
  if (me == 0) {
    shared_first = 0xFFFFFFFFu;
    shared_last = -1;
  }
  for (uint i = begin; i < end; ++i) {
    const float x = F32(p.x).v[first + i];
    Keep(i, i >= count || IsNan(x) ? -kInfinity : x);
  }
  Publish();
  if (best) {
    Best();
  } else {
    if (typical_p < 1.0) TypicalP(typical_p);
    if (top_p < 1.0) TopP(top_p);
    if (log_min_p > -kInfinity) MinP(log_min_p);
    Scale(scale);
    Draw(F32(p.u).v[row]);
  }
  barrier();
  // A run that found its column leaves later ones out of the last one, which then does not count.
  if (me == 0) I32(p.y).v[row] = shared_first != 0xFFFFFFFFu ? int(shared_first) : shared_last;
  barrier();
}

void main() {
  const uint count = At(p.rows, Step(p.step));
  const uint share = (p.columns + size - 1) / size;
  begin = min(me * share, p.columns);
  end = min(begin + share, p.columns);
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    first = row * p.columns;
    list_first = row * p.room;
    Sample(row);
  }
}

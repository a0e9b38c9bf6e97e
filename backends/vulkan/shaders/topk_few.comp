#version 460
// The k largest values of each row of few columns, descending, equal ones by ascending index, or a
// softmax of these. One workgroup for each row: a column's place is the number of those that come
// before it.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "topk_few.args.glsl"
#include "math.kernel"
#include "order.kernel"

const uint kMaxColumns = 512;
shared uint shared_keys[kMaxColumns];
shared float shared_found[kMaxColumns];

uint PlaceOf(uint column) {
  const uint key = shared_keys[column];
  uint place = 0;
  for (uint i = 0; i < p.columns; ++i) {
    const uint other = shared_keys[i];
    if (other > key || (other == key && i < column)) ++place;
  }
  return place;
}

// Each result for itself: there are few. The largest comes first.
float SoftmaxOf(uint place) {
  const float most = shared_found[0];
  if (most == kInfinity) return kNan;
  if (most == -kInfinity) return 0.0;
  float sum = 0.0;
  for (uint i = 0; i < p.k; ++i) sum += Exp(shared_found[i] - most);
  return Exp(shared_found[place] - most) / sum;
}

void main() {
  const uint me = gl_LocalInvocationIndex, size = gl_WorkGroupSize.x;
  const uint count = At(p.rows, Step(p.step));
  for (uint row = GROUP.x; row < count; row += GROUPS.x) {
    for (uint i = me; i < p.columns; i += size) {
      shared_keys[i] = KeyOf(F32(p.x).v[row * p.columns + i]);
    }
    barrier();
    for (uint i = me; i < p.columns; i += size) {
      const uint place = PlaceOf(i);
      if (place >= p.k) continue;
      I32(p.indices).v[row * p.k + place] = int(i);
      shared_found[place] = p.factor * ValueOf(shared_keys[i]);
    }
    barrier();
    for (uint i = me; i < p.k; i += size) {
      F32(p.values).v[row * p.k + i] = kSoftmax != 0 ? SoftmaxOf(i) : shared_found[i];
    }
    barrier();
  }
}

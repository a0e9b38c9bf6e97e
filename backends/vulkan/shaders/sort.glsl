// A list of keys with ids, and sorting it by key descending, then id ascending (bitonic): in shared
// memory, or where the includer's push constants `p` say: `list`, `room` entries, a power of two.

layout(buffer_reference, std430, buffer_reference_align = 8) coherent BUFFER Entries { uvec2 v[]; };

shared uint shared_keys[kShared == 0 ? 1 : kShared];
shared uint shared_ids[kShared == 0 ? 1 : kShared];

#define me gl_LocalInvocationIndex
#define size gl_WorkGroupSize.x

uint list_first = 0;  // of this workgroup's part of the list

uvec2 Get(uint i) {
  if (kShared != 0) return uvec2(shared_keys[i], shared_ids[i]);
  return Entries(p.list).v[list_first + i];
}
void Put(uint i, uvec2 entry) {
  if (kShared != 0) {
    shared_keys[i] = entry.x;
    shared_ids[i] = entry.y;
  } else {
    Entries(p.list).v[list_first + i] = entry;
  }
}
void Sync() {
  if (kShared == 0) memoryBarrierBuffer();
  barrier();
}

bool Before(uvec2 a, uvec2 b) { return a.x > b.x || (a.x == b.x && a.y < b.y); }

void Sort() {
  for (uint block = 2; block <= p.room; block *= 2) {
    for (uint distance = block / 2; distance > 0; distance /= 2) {
      for (uint i = me; i < p.room / 2; i += size) {
        const uint low = (i / distance) * distance * 2 + i % distance;
        const uvec2 a = Get(low), b = Get(low + distance);
        const bool forward = (low & block) == 0;
        if (forward ? Before(b, a) : Before(a, b)) {
          Put(low, b);
          Put(low + distance, a);
        }
      }
      Sync();
    }
  }
}

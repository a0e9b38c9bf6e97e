// A list of keys with ids, and sorting it by key descending, then id ascending (bitonic): in local
// memory, or where the push constants say. The kernel declares the list by LIST, its number of
// entries is `room`, a power of two.
#if kShared != 0
#define Entries __local uint2
#define LIST(row)                 \
  __local uint2 entries[kShared]; \
  __local uint2* list = entries
#define LIST_AT(row)
#else
#define Entries __global uint2
#define LIST(row) __global uint2* list
#define LIST_AT(row) list = AT(uint2, list) + (size_t)(row)*push.room
#endif

bool Before(uint2 a, uint2 b) { return a.x > b.x || (a.x == b.x && a.y < b.y); }

void Sort(Entries* list, uint room) {
  for (uint block = 2; block <= room; block *= 2) {
    for (uint distance = block / 2; distance > 0; distance /= 2) {
      FOR_MINE(i, room / 2) {
        const uint low = (i / distance) * distance * 2 + i % distance;
        const uint2 a = list[low], b = list[low + distance];
        const bool forward = (low & block) == 0;
        if (forward ? Before(b, a) : Before(a, b)) {
          list[low] = b;
          list[low + distance] = a;
        }
      }
      BARRIER();
    }
  }
}

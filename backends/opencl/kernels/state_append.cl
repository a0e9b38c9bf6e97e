// Stores rows at [slot, pos mod capacity] unless a later row of the step takes the same place. One
// work-group for each row.
#include "common.cl"
#include "state_append.args"

#if kBytes == 4
#define Element uint
#else
#define Element ushort
#endif

KERNEL(state_append) {
  __local uint shared_taken;
  const uint count = ROWS_OF(rows);
  for (uint row = GROUP; row < count; row += GROUPS) {
    const int slot = AT(int, slot)[row];
    const int pos = AT(int, pos)[row];
    const bool valid = slot >= 0 && slot < (int)push.slots && pos >= 0;
    if (!valid) FAIL();
    if (ME == 0) shared_taken = 0;
    BARRIER();
    for (uint i = row + 1 + ME; i < count; i += THREADS) {
      const int other = AT(int, pos)[i];
      const bool same = AT(int, slot)[i] == slot && other >= 0 &&
                        (uint)other % push.capacity == (uint)pos % push.capacity;
      if (same) shared_taken = 1;
    }
    BARRIER();
    if (valid && shared_taken == 0) {
      const size_t place = (size_t)slot * push.capacity + (uint)pos % push.capacity;
      __global Element* to = AT(Element, state) + place * push.inner;
      __global const Element* from = AT(Element, x) + (size_t)row * push.inner;
      FOR_MINE(i, push.inner) to[i] = from[i];
    }
    BARRIER();
  }
}

// The work-items that share a row: a work-group, or with kNarrow a subgroup of 32, several of which
// are in a work-group. All of them call RowSum() and RowMax(), and get the result.
#if kNarrow
#define LANE (ME % 32)
#define ROWS_AT_ONCE (THREADS / 32)
#define FIRST_ROW (GROUP * ROWS_AT_ONCE + ME / 32)
#undef FOR_MINE
#define FOR_MINE(i, count) for (uint i = LANE; i < (count); i += 32)
#else
#define LANE ME
#define ROWS_AT_ONCE 1
#define FIRST_ROW GROUP
#endif
// The rows of these work-items, of `count`.
#define FOR_MY_ROWS(row, count) \
  for (uint row = FIRST_ROW; row < (count); row += GROUPS * ROWS_AT_ONCE)

#include "reduce.cl"

float RowSum(float x, __local float* shared) {
#if kNarrow
  return SumOfLanes(x, 32, shared);
#else
  return GroupSum(x, shared);
#endif
}

float RowMax(float x, __local float* shared) {
#if kNarrow
  for (uint mask = 16; mask > 0; mask /= 2) x = fmax(x, ShuffleXor(x, mask));
  return x;
#else
  return GroupMax(x, shared);
#endif
}

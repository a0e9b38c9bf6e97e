// Draws a column of each row with the row's settings: filters as in typical_p, scan (the nucleus)
// and rows (min_p), one after another on a copy of the row, then the draw of scan. One work-group
// for each row; each work-item takes a run of consecutive columns. Sums are added in the order of
// those kernels.
#include "common.cl"
#include "row_sample.args"
#include "math.kernel"
#include "order.kernel"
#include "reduce.cl"
#include "sort.cl"
#define Summed float
#include "prefix_sum.cl"

// A product that is stored must not become part of a sum.
#pragma OPENCL FP_CONTRACT OFF

// A row and this work-item's columns of it.
typedef struct {
  __global float* x;
  __local float* shared;
  uint columns, begin, end;
} Kept;

float Most(const Kept* k) {
  float most = -kInfinity;
  for (uint i = k->begin; i < k->end; ++i) most = fmax(most, k->x[i]);
  return GroupMax(most, k->shared);
}
float Mass(float x, float most) { return x == -kInfinity ? 0.0f : Exp(x - most); }

void TypicalP(const Kept* k, float top_p, Entries* list, uint room) {
  const float most = Most(k);
  if (most == -kInfinity) return;
  float sum = 0.0f, weighted = 0.0f;
  FOR_MINE(i, k->columns) {
    const float z = k->x[i] - most;
    const float e = Exp(z);
    sum += e;
    if (e > 0.0f) weighted += e * z;
  }
  sum = GroupSum(sum, k->shared);
  weighted = GroupSum(weighted, k->shared);
  const float mean = weighted / sum;
  FOR_MINE(i, room) {
    uint key = 0;
    if (i < k->columns) {
      const float z = k->x[i];
      key = ~KeyOf(z == -kInfinity ? kInfinity : fabs(mean - (z - most)));
    }
    list[i] = (uint2)(key, i);
  }
  BARRIER();
  Sort(list, room);
  float part = 0.0f;
  for (uint i = k->begin; i < k->end; ++i) part += Exp(k->x[list[i].y] - most);
  float all;
  float running = PrefixSum(part, &all, k->shared);
  for (uint i = k->begin; i < k->end; ++i) {
    const uint column = list[i].y;
    const float z = k->x[column];
    if (i > 0 && running >= top_p * sum) k->x[column] = -kInfinity;
    running += Exp(z - most);
  }
  BARRIER();
}

// The sum of the masses before this work-item's columns, and of all.
float MassBefore(const Kept* k, float most, float* total) {
  float sum = 0.0f;
  for (uint i = k->begin; i < k->end; ++i) sum += Mass(k->x[i], most);
  return PrefixSum(sum, total, k->shared);
}

void TopP(const Kept* k, float top_p) {
  const float most = Most(k);
  float total;
  float running = MassBefore(k, most, &total);
  for (uint i = k->begin; i < k->end; ++i) {
    const float x = k->x[i];
    if (i > 0 && running >= top_p * total) k->x[i] = -kInfinity;
    running += Mass(x, most);
  }
}

void MinP(const Kept* k, float log_p) {
  const float limit = Most(k) + log_p;
  for (uint i = k->begin; i < k->end; ++i) {
    if (!(k->x[i] >= limit)) k->x[i] = -kInfinity;
  }
}

// Leaves the first column with the largest logit in `found`.
void Best(const Kept* k, __local uint* found) {
  const float most = Most(k);
  bool done = most == -kInfinity;
  for (uint i = k->begin; i < k->end && !done; ++i) {
    done = k->x[i] == most;
    if (done) atomic_min(found, i);
  }
}

// Leaves the drawn column in `found`, or the last one with mass in `last`.
void Draw(const Kept* k, float u, __local uint* found, __local int* last) {
  const float most = Most(k);
  float total;
  float running = MassBefore(k, most, &total);
  const float target = u * total;
  bool done = false;
  for (uint i = k->begin; i < k->end && !done; ++i) {
    const float mass = Mass(k->x[i], most);
    running += mass;
    if (mass > 0.0f) {
      atomic_max(last, (int)i);
      done = running > target;
      if (done) atomic_min(found, i);
    }
  }
}

KERNEL(row_sample) {
  LIST();
  __local float shared[THREADS];
  __local uint shared_first;
  __local int shared_last;
  const uint rows = ROWS_OF(rows), columns = push.columns;
  const uint share = (columns + THREADS - 1) / THREADS;
  const uint begin = min(ME * share, columns), end = min(begin + share, columns);
  for (uint row = GROUP; row < rows; row += GROUPS) {
    LIST_AT(row);
    __global const float* settings = AT(float, settings) + (size_t)row * 5;
    __global const float* x = AT(float, x) + (size_t)row * columns;
    const Kept kept = {AT(float, kept) + (size_t)row * columns, shared, columns, begin, end};
    const float scale = settings[0], top_k = settings[1], top_p = settings[2];
    const float log_min_p = settings[3], typical_p = settings[4];
    const bool best = scale == 0.0f;
    const bool few = !best && top_k > 0.0f && top_k < (float)columns;
    const uint count = few ? (uint)top_k : columns;
    if (ME == 0) {
      shared_first = 0xFFFFFFFFu;
      shared_last = -1;
    }
    for (uint i = begin; i < end; ++i) kept.x[i] = i >= count || IsNan(x[i]) ? -kInfinity : x[i];
    BARRIER();
    if (best) {
      Best(&kept, &shared_first);
    } else {
      if (typical_p < 1.0f) TypicalP(&kept, typical_p, list, push.room);
      if (top_p < 1.0f) TopP(&kept, top_p);
      if (log_min_p > -kInfinity) MinP(&kept, log_min_p);
      for (uint i = begin; i < end; ++i) kept.x[i] *= scale;
      Draw(&kept, AT(float, u)[row], &shared_first, &shared_last);
    }
    BARRIER();
    // A run that found its column leaves later ones out of the last one, which then does not count.
    if (ME == 0) {
      AT(int, y)[row] = shared_first != 0xFFFFFFFFu ? (int)shared_first : shared_last;
    }
    BARRIER();
  }
}

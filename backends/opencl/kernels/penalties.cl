// Penalties on tokens seen in a window of positions. y already holds a copy of the logits. One
// work-group for each row.
#include "common.cl"
#include "penalties.args"

// The tokens a row may have seen: positions of its slot that end at the last old one, then the
// fresh rows.
typedef struct {
  __global const int *history, *tokens, *kv_pos, *kv_slot;
  int pos, slot, old, capacity, last_n;
} Window;

// The token of entry e; -1: none.
int TokenAt(const Window* w, int e) {
  if (e < w->last_n) {
    const int at = w->old - w->last_n + e;
    const bool there =
        at >= 0 && at >= w->old - w->capacity && at > w->pos - w->last_n && at <= w->pos;
    return there ? w->history[(size_t)w->slot * w->capacity + at % w->capacity] : -1;
  }
  const int row = e - w->last_n;
  const int at = w->kv_pos[row];
  const bool there = w->kv_slot[row] == w->slot && at > w->pos - w->last_n && at <= w->pos;
  return there ? w->tokens[row] : -1;
}

KERNEL_RESULT penalties(ARGUMENTS, const Constants constants) {
  const uint count = ROWS_OF(rows);
  for (uint row = GROUP; row < count; row += GROUPS) {
    __global const float* x = AT(float, x) + (size_t)row * push.columns;
    __global float* y = AT(float, y) + (size_t)row * push.columns;
    const int slot = AT(int, q_slot)[row];
    if (slot < 0 || slot >= (int)push.slots) {
      FAIL();
      continue;
    }
    float repeat = kRepeat, frequency = kFrequency, presence = kPresence;
    int last_n = kLastN;
    if (!IS_NULL(settings)) {
      __global const float* settings = AT(float, settings) + (size_t)row * 4;
      repeat = settings[0];
      frequency = settings[1];
      presence = settings[2];
      last_n = (int)clamp(settings[3], 0.0f, (float)push.capacity);
      if (last_n == 0) continue;
    }
    const Window w = {AT(int, history),    AT(int, tokens),     AT(int, kv_pos),
                      AT(int, kv_slot),    AT(int, q_pos)[row], slot,
                      AT(int, past)[slot], (int)push.capacity,  last_n};
    const int entries = last_n + (int)ROWS_OF(fresh);
    for (int e = (int)ME; e < entries; e += THREADS) {
      const int token = TokenAt(&w, e);
      if (token < 0 || token >= (int)push.columns) continue;
      uint seen = 0;
      bool is_first = true;
      for (int other = 0; other < entries; ++other) {
        if (TokenAt(&w, other) != token) continue;
        ++seen;
        if (other < e) is_first = false;
      }
      if (!is_first) continue;
      float z = x[token];
      z = z > 0.0f ? z / repeat : z * repeat;
      y[token] = z - ((float)seen * frequency + presence);
    }
  }
}

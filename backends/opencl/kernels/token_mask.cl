// Logits where a bit is set, -infinity elsewhere.
#include "common.cl"
#include "token_mask.args"

KERNEL token_mask(ARGUMENTS) {
  FOR_EACH(i, ROWS_OF(rows) * push.columns) {
    const uint row = i / push.columns, column = i - row * push.columns;
    const uint bits = AT(uint, bits)[(size_t)row * push.words + column / 32];
    const bool allowed = (bits >> (column % 32) & 1u) != 0;
    AT(float, y)[i] = allowed ? AT(float, x)[i] : -kInfinity;
  }
}

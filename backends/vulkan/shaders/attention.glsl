// Push constants of attention, and which keys a query sees. Of the rows of a workgroup, shared_pos and
// shared_slot say where they are.

PUSH Push {
  uvec2 step, q, k_new, v_new, k_state, v_state, q_pos, q_slot, kv_pos, kv_slot, past, y;
  Extent rows;   // of queries
  Extent fresh;  // of keys
} AS_P;

int FirstOld(uint row, int past) {
  if (kWindow == 0) return 0;
  return (kCanvas != 0 ? past : shared_pos[row]) - kWindow + 1;
}

bool Sees(uint row, int slot, int pos, bool fresh, int past) {
  if (shared_slot[row] != slot) return false;
  if (kCanvas != 0) return fresh || pos >= FirstOld(row, past);
  return pos <= shared_pos[row] && (kWindow == 0 || shared_pos[row] - pos < kWindow);
}

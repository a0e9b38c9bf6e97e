// The range of keys that a query sees. shared_pos, shared_last and shared_slot hold the position,
// the last visible position and the slot of each row of a workgroup.

int FirstOld(uint row, int past) {
  if (kWindow == 0) return 0;
  return (kCanvas != 0 ? past : shared_pos[row]) - kWindow + 1;
}

bool Sees(uint row, int slot, int pos, bool fresh, int past) {
  if (shared_slot[row] != slot) return false;
  if (kCanvas != 0) return fresh || pos >= FirstOld(row, past);
  return pos <= shared_last[row] && (kWindow == 0 || shared_pos[row] - pos < kWindow);
}

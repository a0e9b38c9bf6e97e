// The range of keys that a query sees. shared_pos, shared_last and shared_slot hold the position,
// the last visible position and the slot of each row of a workgroup.

// Above all positions: that of a key that is not there.
const int kNoPos = 0x7FFFFFFF;

// Stores these three of a row of the step at index `at`. A row that is not there, or whose slot
// does not exist, gets slot -1.
void StoreRow(uint at, uint row, uint rows) {
  const int slot = row < rows ? I32(p.q_slot).v[row] : -1;
  shared_slot[at] = slot < int(kSlots) ? slot : -1;
  shared_pos[at] = row < rows ? I32(p.q_pos).v[row] : 0;
  shared_last[at] = row < rows ? min(I32(p.q_end).v[row], kNoPos - 1) : 0;
}

int FirstOld(uint row, int past) {
  if (kWindow == 0) return 0;
  return (kCanvas != 0 ? past : shared_pos[row]) - kWindow + 1;
}

bool Sees(uint row, int slot, int pos, bool fresh, int past) {
  if (shared_slot[row] != slot) return false;
  if (kCanvas != 0) return fresh || pos >= FirstOld(row, past);
  return pos <= shared_last[row] && (kWindow == 0 || shared_pos[row] - pos < kWindow);
}

// Which fresh keys a query sees.
bool SeesKey(int pos, int slot, int key_pos, int key_slot) {
  if (key_slot != slot) return false;
  return kCanvas != 0 || (key_pos <= pos && (kWindow == 0 || pos - key_pos < kWindow));
}
#define kQuads (kDim / 4)  // of a head

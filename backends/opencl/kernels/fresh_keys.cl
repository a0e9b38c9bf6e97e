// Which fresh keys a query sees.
bool SeesKey(int pos, int slot, int key_pos, int key_slot) {
  if (key_slot != slot) return false;
  if (kCanvas != 0) return true;
  if (kWindow != 0 && pos - key_pos >= kWindow) return false;
  return key_pos <= pos;
}
#define kQuads (kDim / 4)  // of a head

// Numbers in an order that integers have: larger keys are larger floats; not-a-number counts as
// -infinity.
uint KeyOf(float x) {
  if (IsNan(x)) x = -kInfinity;
  if (x == 0.0) x = 0.0;  // -0 equals 0
  const uint bits = floatBitsToUint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float ValueOf(uint key) {
  return uintBitsToFloat((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

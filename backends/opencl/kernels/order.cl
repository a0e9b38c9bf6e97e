// Numbers in an order that integers have: larger keys are larger floats; not-a-number counts as
// -infinity.
uint KeyOf(float x) {
  if (IS_NAN(x)) x = -kInfinity;
  const uint bits = as_uint(x) == 0x80000000u ? 0u : as_uint(x);  // -0 equals 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float ValueOf(uint key) { return as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key); }

// Two f32 as f16 in a word, the first in its lower half. Round to nearest even.
uint HalfPair(float low, float high) {
#ifdef NVIDIA
  uint pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return FloatToHalf(low) | FloatToHalf(high) << 16;
#endif
}

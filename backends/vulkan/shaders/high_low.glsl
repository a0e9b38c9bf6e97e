// Numbers of f32 as sums of two f16, for products on matrix units that lose little, powers of two
// that take them into the range of f16, and the largest of eight.

// f16 whose sum is x but for 2^-21 of it: the bits of x that fit f16, and what is left. Drivers may
// take a value that was packed and unpacked for the value itself, so bits are cut off.
uvec2 HighLow(vec2 x) {
  const vec2 high = uintBitsToFloat(floatBitsToUint(x) & 0xFFFFE000u);
  return uvec2(packHalf2x16(high), packHalf2x16(x - high));
}

// The power of two by which a largest value is divided to lie near 2^8: far from both ends of f16.
float UnitOf(float largest) {
  const int exponent = clamp(int(floatBitsToUint(largest) >> 23) - 127 - 8, -100, 100);
  return uintBitsToFloat(uint(127 + exponent) << 23);
}

// The inverse of a power of two. A division may round.
float Inverse(float unit) { return uintBitsToFloat((254u << 23) - floatBitsToUint(unit)); }

// Eight values of a row.
struct Eight {
  vec4 x[2];
};

float Largest(const Eight e) {
  const vec4 most = max(abs(e.x[0]), abs(e.x[1]));
  return max(max(most.x, most.y), max(most.z, most.w));
}

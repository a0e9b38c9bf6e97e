// Integers below 2^22 as floats without conversions, which have an eighth of the rate of sums:
// added to the bits of 1.5 * 2^23, they are the low bits of a float.
#define kSmallBits 0x4B400000
#define kSmallBase 12582912.0f

// Of a sum that begins with kSmallBits.
__forceinline__ float OfSmallBits(int bits) { return as_float(bits) - kSmallBase; }
__forceinline__ float SmallToFloat(int x) { return OfSmallBits(x + kSmallBits); }
__forceinline__ float SmallToFloat(uint x) { return OfSmallBits(int(x) + kSmallBits); }
#undef convert_float
#define convert_float(x) SmallToFloat(x)

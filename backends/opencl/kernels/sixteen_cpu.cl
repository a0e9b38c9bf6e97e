// The runs of a chunk (chunk.kernel) on a CPU: vectors of 16.

typedef union {
  float16 vector;
  float one[16];
} Sixteen;

INLINED Sixteen ValuesOf(const Chunk c, uint run) {
  Sixteen values;
  if (kBlock == 1u) {
    values.vector = vload16(0, (const float*)(c.plain + run * 4));
  } else {
    const float16 codes = convert_float16(vload16(0, (const uchar*)(c.word + run * 4)));
    values.vector = (codes - (float)kBias) * c.scale[run];
  }
  if (kHasOffset) values.vector += c.offset[run];
  return values;
}
#define AddSixteen(x, values, sum) \
  ((*(sum)).vector = fma((float16)(x), (values).vector, (*(sum)).vector))
Sixteen NoSixteen() {
  Sixteen none;
  none.vector = 0.0f;
  return none;
}

// Sums and maxima over a work-group, whose size is a power of two. Every work-item calls them, with
// THREADS floats of local memory, and gets the result.
float Add(float a, float b) { return a + b; }

#if defined(CPU)
#define DEFINE_REDUCTION(Name, OfTwo) \
  float Name(float x, __local float* shared) { return x; }
#elif defined(NVIDIA)
#define DEFINE_REDUCTION(Name, OfTwo)                                            \
  float Name(float x, __local float* shared) {                                   \
    for (uint mask = 16; mask > 0; mask /= 2) x = OfTwo(x, ShuffleXor(x, mask)); \
    if (THREADS <= 32) return x;                                                 \
    BARRIER();                                                                   \
    if (ME % 32 == 0) shared[ME / 32] = x;                                       \
    BARRIER();                                                                   \
    x = shared[0];                                                               \
    for (uint i = 1; i < THREADS / 32; ++i) x = OfTwo(x, shared[i]);             \
    return x;                                                                    \
  }
#else
#define DEFINE_REDUCTION(Name, OfTwo)                                     \
  float Name(float x, __local float* shared) {                            \
    BARRIER();                                                            \
    shared[ME] = x;                                                       \
    BARRIER();                                                            \
    for (uint width = THREADS / 2; width > 0; width /= 2) {               \
      if (ME < width) shared[ME] = OfTwo(shared[ME], shared[ME + width]); \
      BARRIER();                                                          \
    }                                                                     \
    return shared[0];                                                     \
  }
#endif

DEFINE_REDUCTION(GroupSum, Add)
DEFINE_REDUCTION(GroupMax, fmax)

// Sums over lanes: aligned runs of `lanes` work-items, a power of two of at most 32.
#if defined(CPU)
float SumOfLanes(float x, uint lanes, __local float* shared) { return x; }
#elif defined(NVIDIA)
float SumOfLanes(float x, uint lanes, __local float* shared) {
  for (uint mask = lanes / 2; mask > 0; mask /= 2) x += ShuffleXor(x, mask);
  return x;
}
#else
float SumOfLanes(float x, uint lanes, __local float* shared) {
  BARRIER();
  shared[ME] = x;
  BARRIER();
  float sum = 0.0f;
  for (uint i = 0; i < lanes; ++i) sum += shared[(ME & ~(lanes - 1)) + i];
  return sum;
}
#endif

// This work-item's part of the sum of `count` numbers, or of their squares.
float MySum(__global const float* x, uint count, bool squares) {
#ifdef CPU
  // Sixteen sums, which is faster and rounds less.
  float16 sums = 0.0f;
  uint i = 0;
  for (; i + 16 <= count; i += 16) {
    const float16 v = vload16(0, x + i);
    sums += squares ? v * v : v;
  }
  const float8 eight = sums.lo + sums.hi;
  const float4 four = eight.lo + eight.hi;
  float sum = (four.x + four.y) + (four.z + four.w);
  for (; i < count; ++i) sum += squares ? x[i] * x[i] : x[i];
  return sum;
#else
  float sum = 0.0f;
  FOR_MINE(i, count) sum += squares ? x[i] * x[i] : x[i];
  return sum;
#endif
}

// Terms of low-rank adapters for products on tensor cores (LowRank in kernels.def): sums of
// low_rank_inner.kernel times B. Eight terms of a factor are sums of two bf16 numbers, high and
// low, and stand in a chunk of 32 terms: high, low and high ones of sums, high, high and low ones
// of B, then zeros. A few instructions more than a step of the product itself has: straight code
// that adds terms in f32 took longer to be fetched than the product took.

// The chunks of eight terms: those of the first half of a gated product, then of the other.
__forceinline__ uint LowRankChunks(const LowRank& adapter) {
  return (kGlu + 1) * (adapter.terms / 8);
}

// Eight terms, or zeros.
struct EightTerms {
  float4 x[2];
};
__forceinline__ EightTerms Terms(const void* from, bool are_there) {
  const float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (!are_there) return {zeros, zeros};
  return {((const float4*)from)[0], ((const float4*)from)[1]};
}

// The sums in chunk `chunk` of a row of x, divided by the factor of the row, by which results are
// multiplied later.
__forceinline__ EightTerms TermsOfSums(ARGS_ const LowRank& adapter, uint chunk, int row) {
  const bool are_there = row >= 0 && chunk < LowRankChunks(adapter);
  const uint found = uint(max(row, 0));
  const Offset at = Offset(found) * LowRankChunks(adapter) + chunk;
  EightTerms terms = Terms(push.experts + at * 32, are_there);
  const float down = as_float((254u << 23) - as_uint(FLOATS(factor)[found]));
  UNROLL for (uint i = 0; i < 2; ++i) terms.x[i] = terms.x[i] * down;
  return terms;
}

// What of B of a half is in chunk `chunk` of the row of weights of a result.
__forceinline__ EightTerms TermsOfB(ARGS_ const LowRank& adapter, uint chunk, uint half,
                                    uint result) {
  const uint blocks = adapter.terms / 8;
  const bool are_there = chunk / blocks == half && chunk < LowRankChunks(adapter);
  const Memory b = half == 0 ? adapter.b : adapter.b2;
  const Memory row = AdvanceBy(b, min(result, push.n - 1), adapter.stride);
  return Terms(row + chunk % blocks * 32, are_there);
}

// Two numbers cut to bf16, and what that leaves of them as bf16.
__forceinline__ uint HighBrains(float x, float y) {
  return __byte_perm(as_uint(x), as_uint(y), 0x7632);
}
__forceinline__ float LeftOver(float x) { return x - as_float(as_uint(x) & 0xFFFF0000u); }
__forceinline__ uint LowBrains(float x, float y) {
  uint bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(LeftOver(y)), "f"(LeftOver(x)));
  return bits;
}
__forceinline__ uint4 HighOf(const EightTerms& t) {
  return make_uint4(HighBrains(t.x[0].x, t.x[0].y), HighBrains(t.x[0].z, t.x[0].w),
                    HighBrains(t.x[1].x, t.x[1].y), HighBrains(t.x[1].z, t.x[1].w));
}
__forceinline__ uint4 LowOf(const EightTerms& t) {
  return make_uint4(LowBrains(t.x[0].x, t.x[0].y), LowBrains(t.x[0].z, t.x[0].w),
                    LowBrains(t.x[1].x, t.x[1].y), LowBrains(t.x[1].z, t.x[1].w));
}

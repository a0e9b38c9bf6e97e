// Sums and maxima over aligned lanes of a subgroup, as many as a power of two. By shuffles:
// subgroupAdd comes with code for subgroups of which some invocations are elsewhere. Every lane
// gets the result.
#ifndef BUTTERFLY_GLSL
#define BUTTERFLY_GLSL
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

// The logarithm of the largest subgroup size.
const uint kMaxLaneBits = 7;
float SumOfLanes(float x, uint lanes) {
  [[unroll]] for (uint i = 1; i <= kMaxLaneBits; ++i) {
    const uint mask = (1u << kMaxLaneBits) >> i;
    if (mask < lanes) x += subgroupShuffleXor(x, mask);
  }
  return x;
}
float MaxOfLanes(float x, uint lanes) {
  [[unroll]] for (uint i = 1; i <= kMaxLaneBits; ++i) {
    const uint mask = (1u << kMaxLaneBits) >> i;
    if (mask < lanes) x = max(x, subgroupShuffleXor(x, mask));
  }
  return x;
}
#endif

// Sums and maxima over a workgroup of up to 1024 invocations, a power of two. Every invocation calls
// them and gets the result. Two forms: with subgroup arithmetic, and with shared memory alone.
float Add(float a, float b) { return a + b; }

#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

shared float shared_reduce[256];

// By shuffles: subgroupAdd comes with code for subgroups of which some invocations are elsewhere.
#define DEFINE_REDUCTION(Name, OfTwo, Identity)                                          \
  float Name##OfSubgroup(float x) {                                                      \
    [[unroll]] for (uint i = 0; i < 7; ++i) {                                            \
      const uint mask = 64u >> i;                                                        \
      if (mask < gl_SubgroupSize) x = OfTwo(x, subgroupShuffleXor(x, mask));             \
    }                                                                                    \
    return x;                                                                            \
  }                                                                                      \
  float Name(float x) {                                                                  \
    x = Name##OfSubgroup(x);                                                             \
    if (gl_NumSubgroups == 1) return x;                                                  \
    barrier();                                                                           \
    if (gl_SubgroupInvocationID == 0) shared_reduce[gl_SubgroupID] = x;                  \
    barrier();                                                                           \
    /* Each subgroup for itself: one number an invocation, mostly. */                    \
    const uint lane = gl_SubgroupInvocationID;                                           \
    x = lane < gl_NumSubgroups ? shared_reduce[lane] : Identity;                         \
    for (uint i = lane + gl_SubgroupSize; i < gl_NumSubgroups; i += gl_SubgroupSize) {   \
      x = OfTwo(x, shared_reduce[i]);                                                    \
    }                                                                                    \
    return Name##OfSubgroup(x);                                                          \
  }
#else
shared float shared_reduce[1024];

#define DEFINE_REDUCTION(Name, OfTwo, Identity)                                          \
  float Name(float x) {                                                                  \
    const uint i = gl_LocalInvocationIndex;                                              \
    barrier();                                                                           \
    shared_reduce[i] = x;                                                                \
    barrier();                                                                           \
    for (uint width = gl_WorkGroupSize.x / 2; width > 0; width /= 2) {                   \
      if (i < width) shared_reduce[i] = OfTwo(shared_reduce[i], shared_reduce[i + width]); \
      barrier();                                                                         \
    }                                                                                    \
    return shared_reduce[0];                                                             \
  }
#endif

DEFINE_REDUCTION(WorkgroupSum, Add, 0.0)
DEFINE_REDUCTION(WorkgroupMax, max, -kInfinity)

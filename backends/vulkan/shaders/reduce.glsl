// Sums and maxima over a workgroup of up to 1024 invocations, a power of two. Every invocation
// calls them and gets the result. Two forms: with subgroup arithmetic, and with shared memory
// alone.
float Add(float a, float b) { return a + b; }

#ifdef SUBGROUPS
#include "butterfly.glsl"

shared float shared_reduce[256];

#define DEFINE_REDUCTION(Name, OfLanes, OfTwo, Identity)                               \
  float Name(float x) {                                                                \
    x = OfLanes(x, gl_SubgroupSize);                                                   \
    if (gl_NumSubgroups == 1) return x;                                                \
    barrier();                                                                         \
    if (gl_SubgroupInvocationID == 0) shared_reduce[gl_SubgroupID] = x;                \
    barrier();                                                                         \
    /* Each subgroup for itself: one number an invocation, mostly. */                  \
    const uint lane = gl_SubgroupInvocationID;                                         \
    x = lane < gl_NumSubgroups ? shared_reduce[lane] : Identity;                       \
    for (uint i = lane + gl_SubgroupSize; i < gl_NumSubgroups; i += gl_SubgroupSize) { \
      x = OfTwo(x, shared_reduce[i]);                                                  \
    }                                                                                  \
    return OfLanes(x, gl_SubgroupSize);                                                \
  }
#else
shared float shared_reduce[1024];

#define DEFINE_REDUCTION(Name, OfLanes, OfTwo, Identity)                                   \
  float Name(float x) {                                                                    \
    const uint i = gl_LocalInvocationIndex;                                                \
    barrier();                                                                             \
    shared_reduce[i] = x;                                                                  \
    barrier();                                                                             \
    for (uint width = gl_WorkGroupSize.x / 2; width > 0; width /= 2) {                     \
      if (i < width) shared_reduce[i] = OfTwo(shared_reduce[i], shared_reduce[i + width]); \
      barrier();                                                                           \
    }                                                                                      \
    return shared_reduce[0];                                                               \
  }
#endif

DEFINE_REDUCTION(WorkgroupSum, SumOfLanes, Add, 0.0)
DEFINE_REDUCTION(WorkgroupMax, MaxOfLanes, max, -kInfinity)

// Sums and maxima over a workgroup of up to 1024 invocations, a power of two. Every invocation calls
// them and gets the result. Two forms: with subgroup arithmetic, and with shared memory alone.
float Add(float a, float b) { return a + b; }

#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared float shared_reduce[256];

#define DEFINE_REDUCTION(Name, OfSubgroup, OfTwo)                                        \
  float Name(float x) {                                                                  \
    x = OfSubgroup(x);                                                                   \
    if (gl_NumSubgroups == 1) return x;                                                  \
    barrier();                                                                           \
    if (subgroupElect()) shared_reduce[gl_SubgroupID] = x;                               \
    barrier();                                                                           \
    x = shared_reduce[0];                                                                \
    for (uint i = 1; i < gl_NumSubgroups; ++i) x = OfTwo(x, shared_reduce[i]);           \
    return x;                                                                            \
  }
#else
shared float shared_reduce[1024];

#define DEFINE_REDUCTION(Name, OfSubgroup, OfTwo)                                        \
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

DEFINE_REDUCTION(WorkgroupSum, subgroupAdd, Add)
DEFINE_REDUCTION(WorkgroupMax, subgroupMax, max)

// The invocations of a workgroup in an order in which those of a subgroup follow each other, and
// sums over lanes: aligned runs of them, as many as a power of two, which with subgroups are of
// one. Two forms, as in reduce.glsl; in that with shared memory alone every invocation calls the
// sums.
#ifdef SUBGROUPS
#include "butterfly.glsl"
uint Index() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }
// The first of those that have to call the sums together.
uint FirstTogether() { return gl_SubgroupID * gl_SubgroupSize; }

#else
uint Index() { return gl_LocalInvocationIndex; }
uint FirstTogether() { return 0; }

shared float shared_lanes[gl_WorkGroupSize.x];
float SumOfLanes(float x, uint lanes) {
  barrier();
  shared_lanes[Index()] = x;
  barrier();
  float sum = 0.0;
  for (uint i = 0; i < lanes; ++i) sum += shared_lanes[(Index() & ~(lanes - 1)) + i];
  return sum;
}
#endif

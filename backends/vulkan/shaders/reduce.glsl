// Sums and maxima over a workgroup of up to 1024 invocations, a power of two. Every invocation calls
// them and gets the result. Two forms: with subgroup arithmetic, and with shared memory alone.
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared float shared_reduce[256];

float WorkgroupSum(float x) {
  x = subgroupAdd(x);
  if (gl_NumSubgroups == 1) return x;
  barrier();
  if (subgroupElect()) shared_reduce[gl_SubgroupID] = x;
  barrier();
  float sum = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) sum += shared_reduce[i];
  return sum;
}

float WorkgroupMax(float x) {
  x = subgroupMax(x);
  if (gl_NumSubgroups == 1) return x;
  barrier();
  if (subgroupElect()) shared_reduce[gl_SubgroupID] = x;
  barrier();
  float most = shared_reduce[0];
  for (uint i = 1; i < gl_NumSubgroups; ++i) most = max(most, shared_reduce[i]);
  return most;
}
#else
shared float shared_reduce[1024];

float WorkgroupSum(float x) {
  barrier();
  shared_reduce[gl_LocalInvocationIndex] = x;
  barrier();
  for (uint width = gl_WorkGroupSize.x / 2; width > 0; width /= 2) {
    if (gl_LocalInvocationIndex < width) {
      shared_reduce[gl_LocalInvocationIndex] += shared_reduce[gl_LocalInvocationIndex + width];
    }
    barrier();
  }
  return shared_reduce[0];
}

float WorkgroupMax(float x) {
  barrier();
  shared_reduce[gl_LocalInvocationIndex] = x;
  barrier();
  for (uint width = gl_WorkGroupSize.x / 2; width > 0; width /= 2) {
    if (gl_LocalInvocationIndex < width) {
      shared_reduce[gl_LocalInvocationIndex] =
          max(shared_reduce[gl_LocalInvocationIndex],
              shared_reduce[gl_LocalInvocationIndex + width]);
    }
    barrier();
  }
  return shared_reduce[0];
}
#endif

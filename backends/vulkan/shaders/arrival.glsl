// Finds the last of some workgroups to be done. It sees everything that the others wrote to a
// Shared buffer before they arrived.
#ifdef TASK
layout(buffer_reference, std430, buffer_reference_align = 16) nonprivate buffer Shared {
  vec4 v[];
};
layout(buffer_reference, std430, buffer_reference_align = 4) nonprivate buffer Arrivals {
  uint count;
};
#else
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer Shared { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Arrivals {
  uint count;
};
#endif

shared uint shared_arrived;

// Every invocation of the workgroup calls it and gets the result. `counter` is 0 before the first
// of `expected` workgroups, and again after the last.
bool ArrivesLast(uvec2 counter, uint expected) {
#ifdef TASK
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer,
                 gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
  if (gl_LocalInvocationIndex == 0) {
    shared_arrived =
        atomicAdd(Arrivals(counter).count, 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                  gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
  }
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup,
                 gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                 gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
#else
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationIndex == 0) shared_arrived = atomicAdd(Arrivals(counter).count, 1u);
  barrier();
  memoryBarrierBuffer();
#endif
  const bool last = shared_arrived + 1 == expected;
  if (last && gl_LocalInvocationIndex == 0) Arrivals(counter).count = 0;
  return last;
}

// Running sums over a workgroup of up to 1024 invocations. Every invocation calls PrefixSum and
// gets the sum of `x` over the invocations before it, and over all. The includer defines Summed,
// the type.
shared Summed shared_scan[1024];

Summed PrefixSum(Summed x, out Summed total) {
  const uint me = gl_LocalInvocationIndex;
  barrier();
  shared_scan[me] = x;
  barrier();
  for (uint width = 1; width < gl_WorkGroupSize.x; width *= 2) {
    const Summed add = me >= width ? shared_scan[me - width] : Summed(0);
    barrier();
    shared_scan[me] += add;
    barrier();
  }
  total = shared_scan[gl_WorkGroupSize.x - 1];
  return me == 0 ? Summed(0) : shared_scan[me - 1];
}

// Running sums over a work-group: the sum of `x` over the work-items before this one, and over all.
// Every work-item calls it, with THREADS elements of local memory. The includer defines Summed, the
// type.
#ifdef CPU
Summed PrefixSum(Summed x, Summed* total, __local Summed* shared) {
  *total = x;
  return 0;
}
#else
Summed PrefixSum(Summed x, Summed* total, __local Summed* shared) {
  BARRIER();
  shared[ME] = x;
  BARRIER();
  for (uint width = 1; width < THREADS; width *= 2) {
    const Summed add = ME >= width ? shared[ME - width] : (Summed)0;
    BARRIER();
    shared[ME] += add;
    BARRIER();
  }
  *total = shared[THREADS - 1];
  return ME == 0 ? (Summed)0 : shared[ME - 1];
}
#endif

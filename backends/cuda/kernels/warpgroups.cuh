// Products of a warpgroup, four warps of Hopper's devices: sums of 64 rows of weights, which are in
// registers, with rows of x in shared memory; and the barriers by which one warpgroup lets another
// know that data are in shared memory or that it no longer needs them.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

typedef unsigned long long uint64;

__forceinline__ uint InShared(const void* at) { return uint(__cvta_generic_to_shared(at)); }

// ---- barriers -----------------------------------------------------------------------------------

typedef uint64 Barrier;

__forceinline__ void Make(Barrier& barrier, uint arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(InShared(&barrier)), "r"(arrivals));
}
__forceinline__ void Arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" : : "r"(InShared(&barrier)) : "memory");
}
// Waits for the end of the phase of this parity. That before the first one counts as ended.
__forceinline__ void WaitFor(Barrier& barrier, uint parity) {
  uint done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(InShared(&barrier)), "r"(parity)
        : "memory");
  }
}

// ---- copies -------------------------------------------------------------------------------------

// Copies 16 bytes to shared memory, or writes 16 zeros if `bytes` is 0.
__forceinline__ void CopyLater(uint to, const void* from, uint bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// Ends a group of copies, and waits until at most `left` groups of this thread are under way.
__forceinline__ void EndCopies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int left>
__forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(left) : "memory");
}

// ---- products -----------------------------------------------------------------------------------

// Makes what this thread has stored in shared memory visible to products.
__forceinline__ void ShowProducts() {
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}
// Before the first product after registers were written.
__forceinline__ void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
// Ends a group of products; then at most `left` groups are under way.
template <int left>
__forceinline__ void EndProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned %0;"
               :
               : "n"(left)
               : "memory");
}
// Keeps the compiler from moving computations with `word` ahead of this place, to where products
// still read their registers.
__forceinline__ void ComputeFromHere(uint& word) { asm volatile("" : "+r"(word)); }
// Keeps the compiler from computing `word` after this place, while products are under way.
__forceinline__ void ComputeUntilHere(uint& word) { ComputeFromHere(word); }
template <int left>
__forceinline__ void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(left) : "memory");
}

// Rows of 64 numbers in f16, each in 128 bytes: vector v of row r is at place v ^ r % 8. The first
// row is at a multiple of 1,024 bytes. 16 terms of them begin at `at`.
__forceinline__ uint64 RowsAt(uint at) {
  constexpr uint64 kSwizzled = uint64(1) << 62, kEightRows = uint64(1024 / 16) << 32,
                   kUnused = 1 << 16;
  return kSwizzled | kEightRows | kUnused | (at >> 4);
}

#define FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(d, i) FOUR(d, i), FOUR(d, i + 4), FOUR(d, i + 8), FOUR(d, i + 12)
// sums += a x^T of 16 terms. Of a, a warp has 16 rows: lane i has terms i % 4 * 2 and the next of
// rows i / 4 and 8 after it, then the same 8 terms later. Of the sums it has rows i / 4 and 8 after
// it and, of each eight rows of x, rows i % 4 * 2 and the next.
// Numbers are f16, or with MultiplyBrains bf16.
#define DEFINE_MULTIPLICATION(Name, type)                                                   \
  __forceinline__ void Name##32(float* sums, const uint* a, uint64 rows) {                  \
    asm volatile(                                                                           \
        "{ .reg .pred adds; setp.eq.u32 adds, 0, 0;\n"                                      \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                         \
        " {"                                                                                \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "           \
        "{%16, %17, %18, %19}, %20, adds, 1, 1, 0; }"                                       \
        : SIXTEEN(sums, 0)                                                                  \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows));                           \
  }                                                                                         \
  __forceinline__ void Name##64(float* sums, const uint* a, uint64 rows) {                  \
    asm volatile(                                                                           \
        "{ .reg .pred adds; setp.eq.u32 adds, 0, 0;\n"                                      \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                         \
        " {"                                                                                \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
        "{%32, %33, %34, %35}, %36, adds, 1, 1, 0; }"                                       \
        : SIXTEEN(sums, 0), SIXTEEN(sums, 16)                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows));                           \
  }                                                                                         \
  __forceinline__ void Name##128(float* sums, const uint* a, uint64 rows) {                 \
    asm volatile(                                                                           \
        "{ .reg .pred adds; setp.eq.u32 adds, 0, 0;\n"                                      \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                        \
        " {"                                                                                \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
        "{%64, %65, %66, %67}, %68, adds, 1, 1, 0; }"                                       \
        : SIXTEEN(sums, 0), SIXTEEN(sums, 16), SIXTEEN(sums, 32), SIXTEEN(sums, 48)         \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows));                           \
  }                                                                                         \
  template <uint rows>                                                                      \
  __forceinline__ void Name(float* sums, const uint* a, uint at) {                          \
    if constexpr (rows == 32) Name##32(sums, a, RowsAt(at));                                \
    if constexpr (rows == 64) Name##64(sums, a, RowsAt(at));                                \
    if constexpr (rows == 128) Name##128(sums, a, RowsAt(at));                              \
  }
DEFINE_MULTIPLICATION(MultiplyRows, "f16")
DEFINE_MULTIPLICATION(MultiplyBrains, "bf16")

template <uint registers>
__forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(registers));
}
template <uint registers>
__forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(registers));
}

#endif

// Matrices of tensor cores in f16, with sums in f32, and how they come into shared memory and out
// of it.

// sums += a b: each lane has two rows and two columns of the sums, 8 rows apart. Numbers are f16,
// or with MultiplyBrains bf16.
#define DEFINE_MULTIPLICATION(Name, type)                                             \
  __forceinline__ void Name(float* sums, const uint* a, const uint* b) {              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type               \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"         \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
DEFINE_MULTIPLICATION(MultiplyMatrices, "f16")
DEFINE_MULTIPLICATION(MultiplyBrains, "bf16")

// Four matrices of 8 x 8 numbers from shared memory; lane i points to row i % 8 of matrix i / 8.
__forceinline__ void LoadMatrices(uint* to, const void* row) {
  const uint at = uint(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at));
}

// The same, each transposed.
__forceinline__ void LoadTransposed(uint* to, const void* row) {
  const uint at = uint(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at));
}

// Copies 16 bytes to shared memory. They are there after WaitForCopies().
__forceinline__ void CopyLater(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(uint(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
// Waits for the copies that this thread has begun.
__forceinline__ void WaitForCopies() { asm volatile("cp.async.wait_all;" : : : "memory"); }

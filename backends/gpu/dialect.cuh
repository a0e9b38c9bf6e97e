// The dialect of common kernels (backends/gpu/kernels) for CUDA C++; docs/adr/0028 says what the
// names mean. What follows from kernels.def is in dialect.h. Functions have no qualifiers: NVIDIA's
// run-time compiler takes them as functions of the device (--device-as-default-execution-space).
// THREADS, C1, C2, ... are options of the compiler.

typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long long Offset;
typedef uchar* Memory;

// The extents of the step and the first failure of a run: 0, or 1 + the index of an op.
struct Step {
  uint t, r, failed_op;
};
// A dimension: constant + t * T + r * R.
struct Extent {
  uint constant, t, r;
};
uint At(Extent e, const Step* step) { return e.constant + e.t * step->t + e.r * step->r; }

#define KERNEL(name) extern "C" __global__ void __launch_bounds__(THREADS) name(const Push push)
#define ROWS_OF(name) At(push.name, (const Step*)push.step)
#define IS_NULL(name) (push.name == nullptr)
#define FAIL() ((Step*)push.step)->failed_op = push.op
#define ARGS_ const Push &push,
#define ARGS push,
#define LOCAL_
#define LOCAL
#define SHARED(name) shared_##name

#define OFFSET(x) Offset(x)
#define MEMORY(name) push.name
#define AdvanceBy(memory, count, bytes) ((memory) + Offset(count) * (bytes))
#define FLOATS_AT(memory) ((float*)(memory))
#define INTS_AT(memory) ((int*)(memory))
#define UINTS_AT(memory) ((uint*)(memory))
#define USHORTS_AT(memory) ((ushort*)(memory))
#define FLOATS(name) FLOATS_AT(push.name)
#define INTS(name) INTS_AT(push.name)
#define UINTS(name) UINTS_AT(push.name)
#define OUR_FLOATS(name) ((volatile float*)push.name)
#define OUR_UINT2S(name) ((uint2*)push.name)

#define ME threadIdx.x
#define WORKGROUP blockIdx.x
#define WORKGROUPS gridDim.x
#define FOR_EACH(i, count) \
  for (uint i = WORKGROUP * THREADS + ME, i##_end = (count); i < i##_end; i += WORKGROUPS * THREADS)
#define FOR_MINE(i, count) for (uint i = ME; i < (count); i += THREADS)
#define BARRIER() __syncthreads()
#define FENCE_OF_MEMORY()  // is part of BARRIER()
#define ATOMIC_ADD(place, x) atomicAdd(&(place), x)
#define ATOMIC_MIN(place, x) atomicMin(&(place), x)
#define ATOMIC_MAX(place, x) atomicMax(&(place), x)
#define ALL_THREADS THREADS
#define ALL_SUBGROUPS 32
#define ALL_LANES 1
#define SUBGROUPS
#define FIXED_SUBGROUPS
#define SUBGROUP_SIZE 32u
#define SUBGROUP_LANE (ME % SUBGROUP_SIZE)
#define SUBGROUP_INDEX (ME / SUBGROUP_SIZE)
#define SUBGROUP_COUNT ((THREADS + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE)
#define ShuffleXor(x, mask) __shfl_xor_sync(0xFFFFFFFFu, x, mask)
#define SUM(name) float name = 0.0f
#define ADD(name, term) name += term
#define TOTAL(name) name

#define STRUCT(Name) struct Name
#define PRECISE
#define UNROLL _Pragma("unroll")
#define convert_float(x) float(x)
#define convert_double(x) double(x)
#define convert_int(x) int(x)
#define convert_uint(x) uint(x)
uint as_uint(float x) { return __float_as_uint(x); }
uint as_uint(int x) { return uint(x); }
float as_float(uint bits) { return __uint_as_float(bits); }
float as_float(int bits) { return __int_as_float(bits); }
int as_int(float x) { return __float_as_int(x); }
int as_int(uint x) { return int(x); }
uint mul_hi(uint a, uint b) { return __umulhi(a, b); }
float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }
uint2& operator+=(uint2& a, uint2 b) {
  a.x += b.x;
  a.y += b.y;
  return a;
}

bool IsNan(float x) { return (as_uint(x) & 0x7FFFFFFFu) > 0x7F800000u; }
#define kInfinity as_float(0x7F800000u)
#define kNan as_float(0x7FC00000u)

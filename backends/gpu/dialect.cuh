// The dialect of common kernels (backends/gpu/kernels) for CUDA C++; docs/adr/0028 says what the
// names mean. What follows from kernels.def is in dialect.h. Functions have no qualifiers: NVIDIA's
// run-time compiler takes them as functions of the device (--device-as-default-execution-space).
// Options of the compiler are C1, C2, ..., the constants that are fixed, CONSTANT_WORDS, and
// THREADS, or MOST_THREADS if the size of a workgroup is known no sooner than it runs; the words of
// `overlap`, OVERLAPS_LAST and NEXT_OVERLAPS; and SHARED_BYTES if a launch gives shared memory.

typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long long Offset;
typedef uchar* Memory;

#ifdef THREADS
#define MOST_THREADS THREADS
#else
#define THREADS blockDim.x
#endif
// In OPEN forms of kernels, lengths of arrays follow from constants that are not fixed.
#ifdef OPEN
#define ROOM_FOR(count, most) (most)
#endif
// The words of all constants, by id: of those that are not fixed, the kernel reads them. The host
// says how many there are.
extern "C" {
__constant__ uint constants[CONSTANT_WORDS];
}
#define CONSTANT(id) constants[id]

// The extents of the step and the first failure of a run: 0, or 1 + the index of an op.
struct Step {
  uint t, r, failed_op;
};
// A dimension: constant + t * T + r * R.
struct Extent {
  uint constant, t, r;
};
uint At(Extent e, const Step* step) { return e.constant + e.t * step->t + e.r * step->r; }

// A kernel may be launched while the one before it runs (PROGRAMMATIC_STREAM_SERIALIZATION): it
// lets the next one do the same, and waits for the one before, mostly first of all. A kernel that
// can work before its inputs exist is an EARLY_KERNEL, which waits itself, in every block.
//
// Kernels of one level do not depend on each other (`overlap`). The first of them lets the next one
// start when all before the level has ended. The others do not wait for their inputs, which then
// exist, but in the end for the one before them: so the last one ends when all of them have ended,
// and the next level waits for it alone.
#if __CUDA_ARCH__ >= 900
#define LET_NEXT_START() asm volatile("griddepcontrol.launch_dependents;")
#define WAIT_FOR_LAST() asm volatile("griddepcontrol.wait;" : : : "memory")
#else
#define LET_NEXT_START()
#define WAIT_FOR_LAST()
#endif
#define WAIT_FOR_INPUTS()                                 \
  {                                                       \
    if ((overlap & OVERLAPS_LAST) == 0) WAIT_FOR_LAST();  \
    if ((overlap & NEXT_OVERLAPS) != 0) LET_NEXT_START(); \
  }
// Between kernels a step reads so much that nothing else stays in caches. Constants, and what
// Prefetch() names, are asked for before the wait. Memory may change until it is read.
#define ASK_FOR_CONSTANTS() asm volatile("" : : "r"(constants[0]))
__forceinline__ void Prefetch(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"(at));
}
// The same of a number of bytes, by all threads of a block.
__forceinline__ void PrefetchAll(const void* from, uint bytes) {
  constexpr uint kLine = 128;
  if (from == nullptr) return;
  for (uint at = threadIdx.x * kLine; at < bytes; at += blockDim.x * kLine) {
    Prefetch((const uchar*)from + at);
  }
}
// Blocks for which a multiprocessor has registers at a time.
#define LEAST_BLOCKS 1
#define EARLY_KERNEL(name)                                                 \
  __forceinline__ void Run(const Push& push, uint overlap);                \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS, LEAST_BLOCKS) \
      name(const Push push, const uint overlap) {                          \
    if ((overlap & NEXT_OVERLAPS) == 0) LET_NEXT_START();                  \
    ASK_FOR_CONSTANTS();                                                   \
    Run(push, overlap);                                                    \
    if ((overlap & OVERLAPS_LAST) != 0) WAIT_FOR_LAST();                   \
  }                                                                        \
  __forceinline__ void Run(const Push& push, uint overlap)
#define KERNEL(name)                                  \
  __forceinline__ void AfterInputs(const Push& push); \
  EARLY_KERNEL(name) {                                \
    WAIT_FOR_INPUTS();                                \
    AfterInputs(push);                                \
  }                                                   \
  __forceinline__ void AfterInputs(const Push& push)
#define ROWS_OF(name) At(push.name, (const Step*)push.step)
#define IS_NULL(name) (push.name == nullptr)
#define FAIL() ((Step*)push.step)->failed_op = push.op
#define ARGS_ const Push &push,
#define ARGS push,
#define LOCAL_
#define LOCAL
#define SHARED(name) shared_##name
#define SHARED_FLOAT(name, i, element) ((float*)shared_##name)[(i)*4 + (element)]
#define OWN_VARIABLES
#define OWNED_ Own &own_variables,
#define OWNED own_variables,
#define MINE(name) own_variables.name
#define NEW_OWN Own own_variables

#define OFFSET(x) Offset(x)
#define MEMORY(name) push.name
#define RECORD(Type, name) const Type& name = *push.name
#define MEMORY_OF(record, name) record.name
#define IS_NULL_OF(record, name) (record.name == nullptr)
#define AdvanceBy(memory, count, bytes) ((memory) + Offset(count) * (bytes))
#define Advance(memory, bytes) ((memory) + (bytes))
#define FLOATS_AT(memory) ((float*)(memory))
#define INTS_AT(memory) ((int*)(memory))
#define UINTS_AT(memory) ((uint*)(memory))
#define USHORTS_AT(memory) ((ushort*)(memory))
#define UINT2S(name) ((const uint2*)push.name)
#define FLOAT2S_AT(memory) ((const float2*)(memory))
#define OUT_FLOAT2S_AT(memory) ((float2*)(memory))
#define FLOAT4S_AT(memory) ((const float4*)(memory))
#define OUT_FLOAT4S_AT(memory) ((float4*)(memory))
// Weights, which nothing writes while a step runs. Chunks on their way are decoded where they are
// used, and tables stay in registers.
#define WEIGHT_UINTS_AT(memory) ((const uint*)(memory))
#define WEIGHT_UINT4S_AT(memory) ((const uint4*)(memory))
#define ChunkOnItsWay RawChunk
#define ASK_FOR_CHUNK(row, chunk) Load(row, chunk)
#define TAKE_CHUNK(raw, chunk) Unpack(raw, chunk)
#define Table uint4
#define make_Table make_uint4
#define InTable(table, i) \
  make_uint4(WordOf(table, (i).x), WordOf(table, (i).y), WordOf(table, (i).z), WordOf(table, (i).w))
#define OUR_FLOATS(name) ((volatile float*)push.name)
#define OUR_UINT2S(name) ((uint2*)push.name)

#define ME threadIdx.x
#define WORKGROUP blockIdx.x
#define WORKGROUPS gridDim.x
#define WORKGROUP_Y blockIdx.y
#define WORKGROUPS_Y gridDim.y
#define WORKGROUP_Z blockIdx.z
#define WORKGROUPS_Z gridDim.z
#define FOR_EACH(i, count) \
  for (uint i = WORKGROUP * THREADS + ME, i##_end = (count); i < i##_end; i += WORKGROUPS * THREADS)
#define BARRIER() __syncthreads()
#define FENCE_OF_MEMORY()  // is part of BARRIER()
#define ATOMIC_ADD(place, x) atomicAdd(&(place), x)
#define ATOMIC_MIN(place, x) atomicMin(&(place), x)
#define ATOMIC_MAX(place, x) atomicMax(&(place), x)
#define ALL_THREADS MOST_THREADS
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
#define UNROLL_SHARE UNROLL
#define UNROLL_TERMS UNROLL
#define INLINED
#define INOUT(T) T&
#define THE(name) name
#define REF(name) name
#define BROADCAST(x) make_float4(x, x, x, x)
#define XY(vector) make_uint2((vector).x, (vector).y)
#define ZW(vector) make_uint2((vector).z, (vector).w)
#define YZW(vector) make_uint3((vector).y, (vector).z, (vector).w)
#define SIGNED_BYTE(word, i) ((signed char)((word) >> ((i)*8)))
#define ELEMENTS(vector) \
  { (vector).x, (vector).y, (vector).z, (vector).w }
#define BITS as_uint
#define OF_BITS as_float
#define convert_float(x) float(x)
#define convert_double(x) double(x)
#define convert_int(x) int(x)
#define convert_uint(x) uint(x)
#define convert_ushort(x) ushort(x)
#define convert_float_rte(x) __int2float_rn(x)
uint as_uint(float x) { return __float_as_uint(x); }
uint as_uint(int x) { return uint(x); }
float as_float(uint bits) { return __uint_as_float(bits); }
float as_float(int bits) { return __int_as_float(bits); }
int as_int(float x) { return __float_as_int(x); }
int as_int(uint x) { return int(x); }
uint mul_hi(uint a, uint b) { return __umulhi(a, b); }
int clamp(int x, int low, int high) { return min(max(x, low), high); }
float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }
float4 as_float4(uint4 x) {
  return make_float4(as_float(x.x), as_float(x.y), as_float(x.z), as_float(x.w));
}
uint4 as_uint4(float4 x) {
  return make_uint4(as_uint(x.x), as_uint(x.y), as_uint(x.z), as_uint(x.w));
}
float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
float2 operator*(float2 a, float2 b) { return make_float2(a.x * b.x, a.y * b.y); }
float2 operator*(float2 a, float x) { return make_float2(a.x * x, a.y * x); }
float2 fabs(float2 a) { return make_float2(fabs(a.x), fabs(a.y)); }
float4 fabs(float4 a) { return make_float4(fabs(a.x), fabs(a.y), fabs(a.z), fabs(a.w)); }
float2 fmax(float2 a, float2 b) { return make_float2(fmaxf(a.x, b.x), fmaxf(a.y, b.y)); }
float4 fmax(float4 a, float4 b) {
  return make_float4(fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w));
}
float2 as_float2(uint2 x) { return make_float2(as_float(x.x), as_float(x.y)); }
uint2 as_uint2(float2 x) { return make_uint2(as_uint(x.x), as_uint(x.y)); }
float4 operator*(float x, float4 a) { return make_float4(x * a.x, x * a.y, x * a.z, x * a.w); }
float4 operator*(float4 a, float x) { return x * a; }
float4 operator*(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
float4& operator+=(float4& a, float4 b) { return a = a + b; }
float4 fma(float4 a, float4 b, float4 c) {
  return make_float4(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y), fma(a.z, b.z, c.z),
                     fma(a.w, b.w, c.w));
}
float dot(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }
float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
// Operators of vectors of words with a word or a vector.
#define OPERATOR(op)                                                                      \
  uint2 operator op(uint2 a, uint b) { return make_uint2(a.x op b, a.y op b); }           \
  uint3 operator op(uint3 a, uint b) { return make_uint3(a.x op b, a.y op b, a.z op b); } \
  uint4 operator op(uint4 a, uint b) {                                                    \
    return make_uint4(a.x op b, a.y op b, a.z op b, a.w op b);                            \
  }                                                                                       \
  uint2 operator op(uint2 a, uint2 b) { return make_uint2(a.x op b.x, a.y op b.y); }      \
  uint4 operator op(uint4 a, uint4 b) {                                                   \
    return make_uint4(a.x op b.x, a.y op b.y, a.z op b.z, a.w op b.w);                    \
  }
OPERATOR(&)
OPERATOR(|)
OPERATOR(^)
OPERATOR(<<)
OPERATOR(>>)
OPERATOR(*)
uint4& operator|=(uint4& a, uint4 b) { return a = a | b; }
uint4 make_uint4(uint2 low, uint2 high) { return make_uint4(low.x, low.y, high.x, high.y); }
uint2& operator+=(uint2& a, uint2 b) {
  a.x += b.x;
  a.y += b.y;
  return a;
}

float HalfToFloat(uint bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(ushort(bits)));
  return value;
}
uint FloatToHalf(float value) {
  ushort bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
uint HalfPair(float2 x) { return FloatToHalf(x.x) | FloatToHalf(x.y) << 16; }
float2 HalvesOf(uint bits) { return make_float2(HalfToFloat(bits), HalfToFloat(bits >> 16)); }
float4 HalvesOf(uint2 bits) {
  const float2 low = HalvesOf(bits.x), high = HalvesOf(bits.y);
  return make_float4(low.x, low.y, high.x, high.y);
}
#define Half2At(memory) HalvesOf(*(const uint*)(memory))
#define Half4At(memory) HalvesOf(*(const uint2*)(memory))

#include "dialect.kernel"

// Every kernel includes this file: its arguments, the rows of a step, numbers at the edges.
//
// A kernel gets a buffer for each address of its push constants, in their order, and the push
// constants, where each address is an offset in its buffer. THREADS is the number of work-items of
// a work-group, C1 and on are the kernel's own constants, all from the host. Forms: -DCPU, where a
// work-group is one work-item; -DGENERIC; -DNVIDIA, which may use PTX.

#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

typedef ulong Pointer;
// The memory behind `name` of the push constants, as a pointer to T.
#define AT(T, name) ((__global T*)(name##_buffer + push.name))
#define IS_NULL(name) (push.name == ULONG_MAX)

// Constants that a kernel is not built with (Programs::ArgumentsOf).
typedef struct {
  uint v[16];
} Constants;
#ifdef CONSTANTS
#define CONSTANTS_PARAMETER , const Constants constants
#define CONSTANTS_PASSED , constants
#else
#define CONSTANTS_PARAMETER
#define CONSTANTS_PASSED
#endif

// KERNEL(name) { ... } with the arguments of kernels.def. Only a kernel may declare local memory:
// of one that has some in kernels.def, what follows is a function that the kernel calls.
#define KERNEL_ALONE(name) \
  __kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void name(ARGUMENTS)
#define KERNEL_WITH_LOCAL_MEMORY(name)               \
  static INLINED void name##_with(LOCAL_ ARGUMENTS); \
  KERNEL_ALONE(name) {                               \
    __local LocalMemory memory;                      \
    name##_with(&memory, PASSED);                    \
  }                                                  \
  static INLINED void name##_with(LOCAL_ ARGUMENTS)

// For functions that get arrays of a work-item, so that these stay in registers.
#define INLINED __attribute__((always_inline))

#define GROUP ((uint)get_group_id(0))
#define GROUPS ((uint)get_num_groups(0))
#ifdef CPU
#define ME 0u
#define BARRIER()
#else
#define ME ((uint)get_local_id(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

// For each of `count` elements, shared by all work-items: a run of neighbours for each work-item of
// a CPU, neighbours side by side on anything else.
#ifdef CPU
#define FOR_EACH(i, count)                                           \
  for (uint i = (uint)((ulong)(count)*GROUP / GROUPS),               \
            i##_end = (uint)((ulong)(count) * (GROUP + 1) / GROUPS); \
       i < i##_end; ++i)
#else
#define FOR_EACH(i, count)                                              \
  for (uint i = (uint)get_global_id(0), i##_all = (count); i < i##_all; \
       i += (uint)get_global_size(0))
#endif

#ifdef GENERIC
#define UNROLL
#else
#define UNROLL _Pragma("unroll")
#endif

// The extents of the step and the first failure of a run: 0, or 1 + the index of an op.
typedef struct {
  uint t, r, failed_op;
} Step;

// A dimension: constant + t * T + r * R.
typedef struct {
  uint constant_, t, r;
} Extent;
uint At(Extent e, __global const Step* step) {
  if ((e.t | e.r) == 0) return e.constant_;
  return e.constant_ + e.t * step->t + e.r * step->r;
}
#define ROWS_OF(extent) At(push.extent, AT(Step, step))
#define FAIL() AT(Step, step)->failed_op = push.op

// f16 to f32, without f16 on the device and without numbers that it may flush to zero.
float HalfToFloat(uint bits) {
#ifdef NVIDIA
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((ushort)bits));
  return value;
#else
  // The exponent of normal numbers and infinities is moved up past the range of f32 and scaled
  // down again; the bits of subnormal numbers become the fraction of a number from 0.5 on.
  const uint doubled = bits << 17;  // without the sign
  const float normal = as_float((doubled >> 4) + (224u << 23)) * 0x1p-112f;
  const float subnormal = as_float((doubled >> 17) | (126u << 23)) - 0.5f;
  const uint magnitude = doubled < (1u << 27) ? as_uint(subnormal) : as_uint(normal);
  return as_float(magnitude | (bits & 0x8000u) << 16);
#endif
}

// Round to nearest even, overflow to infinity. Without branches, so that loops become vectors.
uint FloatToHalf(float value) {
  const uint bits = as_uint(value);
  const uint magnitude = bits & 0x7FFFFFFFu;
  const uint odd = (magnitude >> 13) & 1u;
  const uint normal = (magnitude - 0x38000000u + 0xFFFu + odd) >> 13;
  // The last bit of a number from 0.5 on is 2^-24, the unit of subnormal numbers.
  const uint subnormal = as_uint(as_float(magnitude) + 0.5f) - as_uint(0.5f);
  uint half_bits = magnitude < 0x38800000u ? subnormal : normal;
  half_bits = magnitude >= 0x477FF000u ? 0x7C00u : half_bits;
  half_bits = magnitude > 0x7F800000u ? 0x7E00u : half_bits;
  return ((bits >> 16) & 0x8000u) | half_bits;
}

// ---- the dialect of common kernels --------------------------------------------------------------

// The names that the sources in backends/gpu/kernels use beside OpenCL C; dialect.glsl has the same
// for GLSL, and docs/adr/0028 says what they mean. What follows from kernels.def is in dialect.h.

#define ARGS_ ARGUMENTS,
#define ARGS PASSED,
#define SHARED(name) local_memory->name
// A float of an array of vectors.
#define SHARED_FLOAT(name, i, element) ((__local float*)SHARED(name))[(i)*4 + (element)]
// Variables of an invocation that all functions share, struct Own: a kernel begins with NEW_OWN.
#define OWN_VARIABLES
#define OWNED_ Own *own_memory,
#define OWNED own_memory,
#define MINE(name) own_memory->name
#define NEW_OWN  \
  Own variables; \
  Own* own_memory = &variables

typedef __global uchar* Memory;
#define Offset size_t
#define OFFSET(x) ((size_t)(x))
#define MEMORY(name) AT(uchar, name)
// A record of the arguments, the memory behind one of its addresses, and whether it is null.
#define RECORD(Type, name) const Type name = push.name
#define MEMORY_OF(record, name) ((Memory)record##_##name##_buffer + record.name)
#define IS_NULL_OF(record, name) (record.name == ULONG_MAX)
#define AdvanceBy(memory, count, bytes) ((memory) + (size_t)(count) * (bytes))
#define Advance(memory, bytes) ((memory) + (bytes))
#define FLOATS_AT(memory) ((__global float*)(memory))
#define INTS_AT(memory) ((__global int*)(memory))
#define UINTS_AT(memory) ((__global uint*)(memory))
#define USHORTS_AT(memory) ((__global ushort*)(memory))
#define UINT2S(name) AT(uint2, name)
#define FLOAT2S_AT(memory) ((__global const float2*)(memory))
#define OUT_FLOAT2S_AT(memory) ((__global float2*)(memory))
#define FLOAT4S_AT(memory) ((__global const float4*)(memory))
#define OUT_FLOAT4S_AT(memory) ((__global float4*)(memory))
// Two f32 as f16 in a word, the first in its lower half. Round to nearest even.
uint HalfPair(float2 x) {
#ifdef NVIDIA
  uint pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x.y), "f"(x.x));
  return pair;
#else
  return FloatToHalf(x.x) | FloatToHalf(x.y) << 16;
#endif
}
// Four numbers in f16, and neighbours in memory.
float4 HalvesOf(uint2 bits) {
#ifdef NVIDIA
  return (float4)(HalfToFloat(bits.x & 0xFFFFu), HalfToFloat(bits.x >> 16),
                  HalfToFloat(bits.y & 0xFFFFu), HalfToFloat(bits.y >> 16));
#else
  return vload_half4(0, (const half*)&bits);
#endif
}
#define Half4At(memory) HalvesOf(*(__global const uint2*)(memory))
#define Half2At(memory) HalvesOf((uint2)(*(__global const uint*)(memory), 0)).xy
// Weights.
#define WEIGHT_UINTS_AT(memory) ((__global const uint*)(memory))
#define WEIGHT_UINT4S_AT(memory) ((__global const uint4*)(memory))
// Chunks on their way are decoded where they are used.
#define ChunkOnItsWay RawChunk
#define ASK_FOR_CHUNK(row, chunk) Load(row, chunk)
#define TAKE_CHUNK(raw, chunk) Unpack(raw, chunk)
// Tables stay in registers.
#define Table uint4
#define make_Table (uint4)
uint4 InTable(Table table, uint4 i) {
  const uint4 low = select((uint4)table.x, (uint4)table.y, i << 31);
  const uint4 high = select((uint4)table.z, (uint4)table.w, i << 31);
  return select(low, high, i << 30);
}
#define OUR_FLOATS(name) AT(float, name)
#define OUR_UINT2S(name) AT(uint2, name)

#define WORKGROUP GROUP
#define WORKGROUPS GROUPS
#define WORKGROUP_Y ((uint)get_group_id(1))
#define WORKGROUPS_Y ((uint)get_num_groups(1))
#define WORKGROUP_Z ((uint)get_group_id(2))
#define WORKGROUPS_Z ((uint)get_num_groups(2))
// Loops of a work-item of a CPU, which has all of a share (SHARE_OF), stay loops.
#ifdef CPU
#define UNROLL_SHARE
#else
#define UNROLL_SHARE UNROLL
#endif
// All terms of a step that are in shared memory.
#define UNROLL_TERMS UNROLL
#define FENCE_OF_MEMORY()  // is part of BARRIER()
#define ATOMIC_ADD(place, x) atomic_add(&(place), x)
#define ATOMIC_MIN(place, x) atomic_min(&(place), x)
#define ATOMIC_MAX(place, x) atomic_max(&(place), x)
#define ALL_THREADS THREADS
#define ALL_SUBGROUPS THREADS
#ifdef NVIDIA
#define SUBGROUPS
#define FIXED_SUBGROUPS  // of a size that compilers know
#define SUBGROUP_SIZE 32
#define SUBGROUP_LANE (ME % SUBGROUP_SIZE)
#define SUBGROUP_INDEX (ME / SUBGROUP_SIZE)
#define SUBGROUP_COUNT ((THREADS + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE)
#define ALL_LANES 1
float ShuffleXor(float x, uint mask) {
  uint y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(y)
               : "r"(as_uint(x)), "r"(mask));
  return as_float(y);
}
#else
#define ALL_LANES THREADS
#endif
// A work-item of a CPU has all terms of a sum over a row: sums of sums of 32 round less than one.
#define SUM(name)                        \
  float name = 0.0f, name##_part = 0.0f; \
  uint name##_terms = 0
#define ADD(name, term)           \
  name##_part += term;            \
  if (++name##_terms % 32 == 0) { \
    name += name##_part;          \
    name##_part = 0.0f;           \
  }
#define TOTAL(name) (name + name##_part)

#define STRUCT(Name)        \
  typedef struct Name Name; \
  struct Name
// A parameter that a function changes: INOUT(T) name, which it calls THE(name). Callers pass
// REF(variable).
#define INOUT(T) T*
#define THE(name) (*name)
#define REF(name) (&name)
#define PRECISE
#define BROADCAST(x) ((float4)(x))
#define BITS as_uint
#define OF_BITS as_float
#define XY(vector) (vector).xy
#define ZW(vector) (vector).zw
#define YZW(vector) (vector).yzw
#define SIGNED_BYTE(word, i) ((char)((word) >> ((i)*8)))
#define ELEMENTS(vector) \
  { (vector).x, (vector).y, (vector).z, (vector).w }
#define make_float2 (float2)
#define make_float4 (float4)
#define make_uint2 (uint2)
#define make_uint4 (uint4)

#include "dialect.kernel"
#include "types.args"

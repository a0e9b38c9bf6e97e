// The dialect of the kernels that all APIs share (backends/gpu/kernels), for GLSL: the names of
// OpenCL C that they use. common.cl has the same for OpenCL C, and docs/adr/0028 says what they
// mean. What follows from kernels.def is in dialect.h.

// ---- the kernel, its arguments and its shared memory ----

#define KERNEL(name) void main()
#define push p
#define ROWS_OF(name) At(p.name, Step(p.step))
#define IS_NULL(name) IsNull(p.name)
#define FAIL() Step(p.step).failed_op = p.op
// Functions reach arguments and shared memory without parameters.
#define ARGS_
#define ARGS
#define LOCAL_
#define LOCAL
#define SHARED(name) shared_##name
#define SHARED_FLOAT(name, i, element) shared_##name[i][element]
#define OWN_VARIABLES Own own_variables;
#define OWNED_
#define OWNED
#define MINE(name) own_variables.name
#define NEW_OWN

// ---- memory ----

// A place in memory, and an index that may be beyond 32 bits where the API has such indices.
#define Memory uvec2
#define Offset uint
#define OFFSET(x) (x)
#define MEMORY(name) p.name
#define RECORD(Type, name) const Type name = Type##At(p.name).v
#define MEMORY_OF(record, name) record.name
#define IS_NULL_OF(record, name) IsNull(record.name)
#define FLOATS_AT(memory) F32(memory).v
#define INTS_AT(memory) I32(memory).v
#define UINTS_AT(memory) U32(memory).v
#define USHORTS_AT(memory) U16(memory).v
vec4 HalvesOf(uvec2 bits) { return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y)); }
#define Half4At(memory) HalvesOf(U32x2(memory).v[0])
#define Half2At(memory) unpackHalf2x16(U32(memory).v[0])
#define UINT2S(name) U32x2(p.name).v
#define HalfPair packHalf2x16
#define FLOAT2S_AT(memory) F32x2(memory).v
layout(buffer_reference, std430, buffer_reference_align = 8) BUFFER OutF32x2 { vec2 v[]; };
#define OUT_FLOAT2S_AT(memory) OutF32x2(memory).v
#define FLOAT4S_AT(memory) F32x4(memory).v
layout(buffer_reference, std430, buffer_reference_align = 16) BUFFER OutF32x4 { vec4 v[]; };
#define OUT_FLOAT4S_AT(memory) OutF32x4(memory).v
// Memory that invocations of a workgroup write, and others of it read after FENCE_OF_MEMORY() and
// BARRIER().
layout(buffer_reference, std430, buffer_reference_align = 4) coherent BUFFER OurF32 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) coherent BUFFER OurU32x2 {
  uvec2 v[];
};
#define OUR_FLOATS(name) OurF32(p.name).v
#define OUR_UINT2S(name) OurU32x2(p.name).v

// Weights, which nothing writes while a step runs.
layout(buffer_reference, std430, buffer_reference_align = 4) CONSTANT Weights32 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) CONSTANT Weights128 { uvec4 v[]; };
#define WEIGHT_UINTS_AT(memory) Weights32(memory).v
#define WEIGHT_UINT4S_AT(memory) Weights128(memory).v
// Chunks on their way are decoded where they are asked for: compilers order loads.
#define ChunkOnItsWay Chunk
#define ASK_FOR_CHUNK(row, chunk) Decode(row, chunk)
#define TAKE_CHUNK(c, chunk) (c)
// Tables stay in memory.
#define Table uint[4]
#define make_Table uint[4]
uvec4 InTable(const Table table, uvec4 i) {
  return uvec4(table[i.x], table[i.y], table[i.z], table[i.w]);
}

// ---- the workgroup ----

#define ME gl_LocalInvocationIndex
const uint kGroupThreads = gl_WorkGroupSize.x;
#define THREADS kGroupThreads
#define WORKGROUP GROUP.x
#define WORKGROUPS GROUPS.x
#define WORKGROUP_Y GROUP.y
#define WORKGROUPS_Y GROUPS.y
#define WORKGROUP_Z GROUP.z
#define WORKGROUPS_Z GROUPS.z
#define UNROLL_SHARE [[unroll]]
#define UNROLL_TERMS
#define INLINED
#define FOR_EACH(i, count) \
  for (uint i = WORKGROUP * THREADS + ME, i##_end = (count); i < i##_end; i += WORKGROUPS * THREADS)
#define BARRIER() barrier()
#define FENCE_OF_MEMORY() memoryBarrierBuffer()
#define ATOMIC_ADD(place, x) atomicAdd(place, x)
#define ATOMIC_MIN(place, x) atomicMin(place, x)
#define ATOMIC_MAX(place, x) atomicMax(place, x)
// Elements of an array in shared memory: one for each invocation of any workgroup, each subgroup,
// and each invocation that takes part in a sum over lanes without subgroups.
#define ALL_THREADS 1024
#ifdef SUBGROUPS
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define SUBGROUP_LANE gl_SubgroupInvocationID
#define SUBGROUP_SIZE gl_SubgroupSize
#define SUBGROUP_INDEX gl_SubgroupID
#define SUBGROUP_COUNT gl_NumSubgroups
#define ShuffleXor(x, mask) subgroupShuffleXor(x, mask)
#define ALL_SUBGROUPS 256
#define ALL_LANES 1
#else
#define ALL_SUBGROUPS ALL_THREADS
#define ALL_LANES gl_WorkGroupSize.x
#endif
// An invocation has few terms of a sum over a row: SUM(x), ADD(x, term), TOTAL(x).
#define SUM(name) float name = 0.0
#define ADD(name, term) name += term
#define TOTAL(name) name

// ---- the language ----

#define STRUCT(Name) struct Name
#define INOUT(T) inout T
#define THE(name) name
#define REF(name) name
#define PRECISE precise
#define UNROLL [[unroll]]
#define BROADCAST(x) vec4(x)
#define XY(vector) (vector).xy
#define ZW(vector) (vector).zw
#define YZW(vector) (vector).yzw
#define SIGNED_BYTE(word, i) bitfieldExtract(int(word), int((i)*8), 8)
#define ELEMENTS(vector) float[4]((vector).x, (vector).y, (vector).z, (vector).w)
#define float2 vec2
#define float4 vec4
#define uint2 uvec2
#define uint3 uvec3
#define uint4 uvec4
#define make_float2 vec2
#define make_float4 vec4
#define make_uint2 uvec2
#define make_uint4 uvec4
#define convert_float float
#define convert_double double
#define convert_int int
#define convert_uint uint
#define convert_ushort uint16_t
#define fabs abs
#define fmax max
#define fmin min
#define as_float2 uintBitsToFloat
#define as_uint2 floatBitsToUint
// as_uint() of a float, and as_float() of a uint: no functions.
#define BITS floatBitsToUint
#define OF_BITS uintBitsToFloat
#define as_float4 uintBitsToFloat
#define as_uint4 floatBitsToUint
uint as_uint(float x) { return floatBitsToUint(x); }
uint as_uint(int x) { return uint(x); }
float as_float(uint bits) { return uintBitsToFloat(bits); }
float as_float(int bits) { return intBitsToFloat(bits); }
int as_int(float x) { return floatBitsToInt(x); }
int as_int(uint x) { return int(x); }
uint mul_hi(uint a, uint b) {
  uint high, low;
  umulExtended(a, b, high, low);
  return high;
}
// To nearest even: shaders may round a conversion either way.
float convert_float_rte(int x) {
  const bool negative = x < 0;
  const uint m = negative ? uint(-(x + 1)) + 1u : uint(x);
  const int top = findMSB(m);
  if (top < 24) return float(x);
  const int shift = top - 23;
  const uint low = m & ((1u << shift) - 1u);
  const uint middle = 1u << (shift - 1);
  uint kept = m >> shift;
  if (low > middle || (low == middle && (kept & 1u) != 0u)) ++kept;
  const float y = float(kept) * uintBitsToFloat(uint(shift + 127) << 23);
  return negative ? -y : y;
}

#include "dialect.kernel"

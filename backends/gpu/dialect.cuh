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
#define FLOATS(name) FLOATS_AT(push.name)
#define INTS(name) INTS_AT(push.name)
#define UINTS(name) UINTS_AT(push.name)
#define USHORTS(name) USHORTS_AT(push.name)
#define UINT2S(name) ((const uint2*)push.name)
#define FLOAT4S_AT(memory) ((const float4*)(memory))
#define FLOAT4S(name) FLOAT4S_AT(push.name)
#define OUT_FLOAT4S_AT(memory) ((float4*)(memory))
#define OUT_FLOAT4S(name) OUT_FLOAT4S_AT(push.name)
#define OUR_FLOATS(name) ((volatile float*)push.name)
#define OUR_UINT2S(name) ((uint2*)push.name)

#define ME threadIdx.x
#define WORKGROUP blockIdx.x
#define WORKGROUPS gridDim.x
#define WORKGROUP_Y blockIdx.y
#define WORKGROUPS_Y gridDim.y
#define WORKGROUP_Z blockIdx.z
#define WORKGROUPS_Z gridDim.z
#define SHARE_OF(count) (((count) + THREADS - 1) / THREADS)
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
#define UNROLL_SHARE UNROLL
#define UNROLL_TERMS UNROLL
#define INLINED
#define INOUT(T) T&
#define THE(name) name
#define REF(name) name
#define BROADCAST(x) make_float4(x, x, x, x)
#define ELEMENTS(vector) \
  { (vector).x, (vector).y, (vector).z, (vector).w }
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
float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }
float4 as_float4(uint4 x) {
  return make_float4(as_float(x.x), as_float(x.y), as_float(x.z), as_float(x.w));
}
uint4 as_uint4(float4 x) {
  return make_uint4(as_uint(x.x), as_uint(x.y), as_uint(x.z), as_uint(x.w));
}
float4 operator*(float x, float4 a) { return make_float4(x * a.x, x * a.y, x * a.z, x * a.w); }
float4& operator+=(float4& a, float4 b) {
  a = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  return a;
}
float4 fma(float4 a, float4 b, float4 c) {
  return make_float4(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y), fma(a.z, b.z, c.z),
                     fma(a.w, b.w, c.w));
}
float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
uint2& operator+=(uint2& a, uint2 b) {
  a.x += b.x;
  a.y += b.y;
  return a;
}

bool IsNan(float x) { return (as_uint(x) & 0x7FFFFFFFu) > 0x7F800000u; }
#define kInfinity as_float(0x7F800000u)
#define kNan as_float(0x7FC00000u)

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
float2 Half2At(Memory memory) {
  const uint bits = *(const uint*)memory;
  return make_float2(HalfToFloat(bits), HalfToFloat(bits >> 16));
}
float4 Half4At(Memory memory) {
  const float2 low = Half2At(memory), high = Half2At(memory + 4);
  return make_float4(low.x, low.y, high.x, high.y);
}
float BFloat16ToFloat(uint bits) { return as_float(bits << 16); }
uint FloatToBFloat16(float value) {
  const uint bits = as_uint(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
}

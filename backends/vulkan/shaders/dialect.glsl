// The dialect of the kernels that both APIs share (backends/gpu/kernels), for GLSL: the names of
// OpenCL C that they use. common.cl has the other half. Such a kernel is KERNEL(name) { ... },
// reads and writes the memory behind an argument by FLOATS(name)[i], INTS(name)[i] or
// UINTS(name)[i], and reads other arguments by push.name.
#define KERNEL(name) void main()
#define push p
#define FLOATS(name) F32(p.name).v
#define INTS(name) I32(p.name).v
#define UINTS(name) U32(p.name).v
#define IS_NULL(name) IsNull(p.name)
#define ROWS_OF(name) At(p.name, Step(p.step))
#define FAIL() Step(p.step).failed_op = p.op

#define ME gl_LocalInvocationIndex
#define THREADS gl_WorkGroupSize.x
#define WORKGROUP GROUP.x
#define WORKGROUPS GROUPS.x
#define FOR_EACH(i, count) \
  for (uint i = INVOCATION, i##_end = (count); i < i##_end; i += WORKGROUPS * THREADS)
#define FOR_MINE(i, count) for (uint i = ME; i < (count); i += THREADS)

#define PRECISE precise
#define float2 vec2
#define uint2 uvec2
#define uint4 uvec4
#define make_float2 vec2
#define make_uint2 uvec2
#define make_uint4 uvec4
#define convert_float float
#define convert_int int
#define fabs abs
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

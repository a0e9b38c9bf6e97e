// Every shader includes this file: pointers into memory, the rows of a step, numbers at the edges.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#include "types.args.glsl"

// Invocations of a workgroup are always constant 0; constants of an op count from 1.
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;

// Each shader has two kinds of forms. Alone it is a pipeline, and a dispatch gives it `p` and its
// workgroups. As a task (-DTASK) it is one of the functions of a pipeline that runs a whole step
// (persistent.comp), whose variables of these names say what would be a dispatch's.
#ifdef TASK
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
uvec2 task_push;
uvec3 task_group, task_groups;
#define BUFFER nonprivate buffer
#define INPUT nonprivate buffer  // other tasks write it
#define GROUP task_group
#define GROUPS task_groups
#else
#define BUFFER buffer
#define INPUT readonly buffer
#define GROUP gl_WorkGroupID
#define GROUPS gl_NumWorkGroups
#endif
// Memory that nothing writes while a step runs.
#define CONSTANT readonly buffer
#define INVOCATION (GROUP.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x)

layout(buffer_reference, std430, buffer_reference_align = 4) BUFFER F32 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) INPUT F32x2 { vec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) INPUT F32x4 { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) BUFFER I32 { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) BUFFER U32 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) INPUT U32x2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) INPUT U32x4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) BUFFER U16 { uint16_t v[]; };
// The extents of the step and the first failure of a run: 0, or 1 + the index of an op.
layout(buffer_reference, std430, buffer_reference_align = 8) BUFFER Step {
  uint t;
  uint r;
  uint failed_op;
};

// A dimension: constant + t * T + r * R.
struct Extent {
  uint constant;
  uint t;
  uint r;
};
uint At(Extent e, Step step) {
  if ((e.t | e.r) == 0) return e.constant;
  return e.constant + e.t * step.t + e.r * step.r;
}

float HalfToFloat(uint bits) { return unpackHalf2x16(bits).x; }

// Round to nearest even, overflow to infinity: packHalf2x16 may round either way.
uint FloatToHalf(float value) {
  const uint bits = floatBitsToUint(value);
  const uint sign = (bits >> 16) & 0x8000u;
  const uint magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;
  if (magnitude < 0x38800000u) {
    // Subnormal: the value in units of 2^-24, which scaling by a power of two makes exactly, and
    // which is below 2^10, so that adding and taking away 2^23 rounds it to an integer.
    precise float scaled = uintBitsToFloat(magnitude) * 16777216.0;
    precise float rounded = (scaled + 8388608.0) - 8388608.0;
    return sign | uint(rounded);
  }
  const uint odd = (magnitude >> 13) & 1u;
  return sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13);
}

bool IsNull(uvec2 pointer) { return (pointer.x | pointer.y) == 0; }
uvec2 Advance(uvec2 pointer, uint bytes) {
  uint carry;
  const uint low = uaddCarry(pointer.x, bytes, carry);
  return uvec2(low, pointer.y + carry);
}
// pointer + count * bytes, beyond 32 bits
uvec2 AdvanceBy(uvec2 pointer, uint count, uint bytes) {
  uint high, low;
  umulExtended(count, bytes, high, low);
  pointer = Advance(pointer, low);
  pointer.y += high;
  return pointer;
}

#include "dialect.glsl"

// Common part of all shaders for matrix units: extensions, and cooperative matrices of 16 x 16.
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

const uint kMatrix = 16;  // rows, columns and terms of a cooperative matrix
const uint kLanes = 32;   // invocations of a subgroup

#define Sums fcoopmatNV<32, gl_ScopeSubgroup, kMatrix, kMatrix>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, kMatrix, kMatrix>

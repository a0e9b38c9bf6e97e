// Shaders for VK_KHR_cooperative_matrix.
//
// The shaders are written for VK_NV_cooperative_matrix, which the shader compilers of older
// distributions know. Each instruction of NV has one of KHR with the same meaning; the number of
// elements is not a constant in KHR. Strides of both are in elements of the type that a pointer
// points to. But a type of KHR also says which operand of a product its matrices are: A, B, or an
// accumulator (C and the result). The rewriting follows the texts of SPV_NV_cooperative_matrix and
// SPV_KHR_cooperative_matrix in the SPIR-V registry.
//
// Thread safety: all functions are pure.
#pragma once

#include <optional>

#include "backends/vulkan/instructions.h"

namespace rullama::vulkan {

// Numbers of SPV_KHR_cooperative_matrix, which the headers of older distributions lack.
namespace khr {
inline constexpr auto kCapability = static_cast<spv::Capability>(6022);
inline constexpr auto kOpTypeMatrix = static_cast<spv::Op>(4456);
inline constexpr auto kOpLoad = static_cast<spv::Op>(4457);
inline constexpr auto kOpStore = static_cast<spv::Op>(4458);
inline constexpr auto kOpMulAdd = static_cast<spv::Op>(4459);
inline constexpr auto kOpLength = static_cast<spv::Op>(4460);
}  // namespace khr

// The same shader in terms of SPV_KHR_cooperative_matrix; nothing if it has no matrices.
//
// A matrix is the operand that products take it as, or what it is copied from or to
// (matrix_uses.h). Matrices of one type whose elements are used singly have to be the same operand,
// because the order of elements depends on it: in NV on the type alone.
//
// Throws sdk::Error(RL_INTERNAL) for matrices in code that is not SPIR-V, a matrix that would be
// two different operands or may be either, one of a type that devices are not asked for
// (MatrixUses::Allows), and whatever else has no counterpart: another memory model than Vulkan's, a
// layout that is not a constant, a constant made of the number of elements other than by
// arithmetic, an instruction with matrices that is not listed in matrix_uses.cc.
std::optional<Spirv> WithKhrMatrices(const Spirv& code);

}  // namespace rullama::vulkan

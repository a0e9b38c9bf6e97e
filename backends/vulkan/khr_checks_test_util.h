// Checks of SPIR-V that WithKhrMatrices() wrote, for tests.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backends/vulkan/khr_matrices.h"
#include "backends/vulkan/matrix_uses.h"

namespace rullama::vulkan {

// The instructions of a module of KHR, whatever SPIRV-Tools know of that extension.
std::vector<Instruction> ReadKhr(const Spirv& code);
std::vector<Instruction> All(const std::vector<Instruction>& code, spv::Op op);
// The value of each constant of 32 bits.
std::map<uint32_t, uint32_t> ConstantsIn(const std::vector<Instruction>& code);
// By matrix type: what it says its matrices are.
std::map<uint32_t, MatrixUse> MatrixTypesIn(const std::vector<Instruction>& code);
// The uses of the matrices that a module loads, in the order of the loads.
std::vector<MatrixUse> UsesOfLoads(const std::vector<Instruction>& code);

// Expects of `khr`, which was made of `nv`:
// - Nothing of NV is left.
// - Ids are declared once, before their use.
// - Products take A, B and an accumulator and give an accumulator.
// - The types of operands and results agree, as SPIR-V demands.
// - Matrices have the numbers, scope, rows and columns that they had.
// - Loads and stores are the same, in the same order.
void CheckKhr(const Spirv& nv, const Spirv& khr);

}  // namespace rullama::vulkan

// SPIR-V as a list of instructions.
//
// Thread safety: all functions are pure.
#pragma once

#include <spirv-tools/libspirv.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <spirv/unified1/spirv.hpp>
#include <string>
#include <vector>

namespace rullama::vulkan {

using Spirv = std::vector<uint32_t>;

// The environment that shaders are compiled for.
inline constexpr spv_target_env kSpirvTarget = SPV_ENV_VULKAN_1_2;
inline constexpr size_t kHeaderWords = 5;  // of a module, before its first instruction
inline constexpr size_t kBoundAt = 3;      // the header's word that all ids are below

struct Instruction {
  spv::Op op = spv::OpNop;
  Spirv words;
  std::vector<uint16_t> ids;  // words that are ids, those of type and result included
  uint32_t type = 0;          // 0: none
  uint32_t result = 0;        // 0: none
};

// Throws sdk::Error(RL_INTERNAL) if the code is not SPIR-V.
std::vector<Instruction> Parse(const Spirv& code);

// Such as "OpLoad".
std::string NameOf(spv::Op op);

// The words of an instruction.
Spirv Words(spv::Op op, std::initializer_list<uint32_t> operands);
// Sets the first word to that of `op` with as many words as there are.
void SetOp(spv::Op op, Spirv& words);

inline void Append(Spirv& to, const Spirv& words) {
  to.insert(to.end(), words.begin(), words.end());
}

}  // namespace rullama::vulkan

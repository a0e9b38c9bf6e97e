// Kernels in WGSL, made of their SPIR-V. WGSL has no addresses: an address is a binding, in its
// high word, and an offset in the memory of that binding, in its low word.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace rullama::webgpu {

// The binding of the arguments. In addresses another number stands for it, and memory has the
// bindings from 1 on, so that only null is 0. Kernels never access a null
// address.
inline constexpr uint32_t kArgumentsBinding = 0;
inline constexpr uint32_t kArgumentsAddress = 255;
inline constexpr uint32_t kNullAddress = 0;

struct WgslSource {
  std::span<const uint32_t> code;       // SPIR-V
  std::span<const uint32_t> constants;  // by SpecId; the first one is the size of a workgroup
  // The bindings of addresses among the arguments, by their offsets in these.
  std::map<uint32_t, uint32_t> bindings;
  uint32_t binding_count = 0;  // of memory
};

// The function `main` of a module that has these bindings in group 0. Code that the constants
// switch off is left out. Errors: RL_INTERNAL for SPIR-V that kernels do not have so far.
std::string WgslOf(const WgslSource& source);

}  // namespace rullama::webgpu

// Translates the entry of a kernel in kernels.def to text for its compiler: shared numbers,
// specialisation constants, shared memory and the arguments, in any dialect. Shaders get it at
// build time (write_kernel_headers.cc), OpenCL at run time.
//
// Thread safety: all functions are pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/dialect.h"
#include "backends/gpu/kernels.h"

namespace rullama::gpu {

// The name of a kernel, which is that of its file without the extension.
std::string_view NameOf(Shader shader);
std::span<const Shader> AllShaders();

struct SpecConstant {
  enum class Type : uint8_t { kU32, kI32, kF32 };
  std::string name;  // in kernels: kHeads
  Type type = Type::kU32;
  std::string value;  // before specialisation
  bool is_capacity = false;
};
// The specialisation constants of a kernel from id 1 on; 0 is the size of a workgroup.
std::vector<SpecConstant> ConstantsOf(Shader shader);
// The id of the constant of this name (kType), or of the capacity of a kernel that has one; 0 if
// there is none.
size_t FindConstant(Shader shader, std::string_view name);
size_t FindCapacity(Shader shader);

// Numbers for all element types: kF32 and the like.
std::string TypeNumbers(const Dialect& dialect);
// The header that a kernel gets of its entry: numbers, specialisation constants, records, shared
// memory and arguments.
std::string Header(Shader shader, const Dialect& dialect);

}  // namespace rullama::gpu

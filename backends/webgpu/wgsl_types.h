// The spellings of types and constants in WGSL.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "backends/webgpu/spirv.h"

namespace rullama::webgpu {

class TypeNames {
 public:
  explicit TypeNames(const Module& module) : module_(module) {}

  // Structs with the same members have one name, whatever their layout in memory.
  std::string NameOf(uint32_t type);
  // The name of a scalar or vector type with another scalar: "u32" or "vec2<u32>" for `u32`.
  std::string NameWith(uint32_t type, const std::string& scalar);
  std::string Literal(uint32_t type, uint32_t word);
  // The text of a constant outside of functions.
  std::string ConstantText(uint32_t id);
  // The structs that were named.
  [[nodiscard]] std::string Declarations() const;

 private:
  const Module& module_;
  std::map<std::string, std::string> structs_;  // names by members
};

}  // namespace rullama::webgpu

#include "backends/webgpu/wgsl_types.h"

#include <rullama/sdk/backend.h>

#include <bit>
#include <cmath>
#include <cstdio>

namespace rullama::webgpu {
namespace {

std::string FloatText(uint32_t bits) {
  const auto value = std::bit_cast<float>(bits);
  // WGSL has no constants that are not finite.
  if (!std::isfinite(value)) return "bitcast<f32>(rl_zero | " + std::to_string(bits) + "u)";
  char text[32];
  std::snprintf(text, sizeof(text), "%.9gf", static_cast<double>(value));
  return text[0] == '-' ? "(" + std::string(text) + ")" : text;
}

sdk::Error NoWidth(const char* kind, uint32_t width) {
  return sdk::Error(RL_INTERNAL,
                    "a shader has a " + std::to_string(width) + "-bit " + kind +
                        "; WGSL has floats of 32 bits, and integers of 32 or, in memory, 16");
}

std::string IntegerText(uint32_t word, bool is_signed) {
  if (!is_signed) return std::to_string(word) + "u";
  const auto value = static_cast<int32_t>(word);
  if (value >= 0) return std::to_string(value) + "i";
  return "bitcast<i32>(" + std::to_string(word) + "u)";
}

}  // namespace

std::string TypeNames::NameOf(uint32_t id) {
  const Type& type = module_.TypeOf(id);
  switch (type.op) {
    case spv::OpTypeBool:
      return "bool";
    case spv::OpTypeInt:
      if (type.width != 32 && type.width != 16) throw NoWidth("integer", type.width);
      return type.is_signed ? "i32" : "u32";
    case spv::OpTypeFloat:
      if (type.width != 32) throw NoWidth("float", type.width);
      return "f32";
    case spv::OpTypeVector:
      return "vec" + std::to_string(type.count) + "<" + NameOf(type.of) + ">";
    case spv::OpTypeArray:
      return "array<" + NameOf(type.of) + ", " + std::to_string(type.count) + ">";
    case spv::OpTypePointer:
      if (type.storage == spv::StorageClassPhysicalStorageBuffer) return "vec2<u32>";
      return "ptr<function, " + NameOf(type.of) + ">";
    case spv::OpTypeStruct:
      break;
    default:
      throw sdk::Error(RL_INTERNAL, "WGSL has no type of kind " + std::to_string(type.op));
  }
  std::string members;
  for (size_t i = 0; i < type.members.size(); ++i) {
    members += "m" + std::to_string(i) + ": " + NameOf(type.members[i]) + ", ";
  }
  const auto [found, added] = structs_.try_emplace(members, "S" + std::to_string(structs_.size()));
  return found->second;
}

std::string TypeNames::NameWith(uint32_t id, const std::string& scalar) {
  const Type& type = module_.TypeOf(id);
  if (type.op != spv::OpTypeVector) return scalar;
  return "vec" + std::to_string(type.count) + "<" + scalar + ">";
}

std::string TypeNames::Literal(uint32_t id, uint32_t word) {
  const Type& type = module_.TypeOf(id);
  if (type.op == spv::OpTypeBool) return word != 0 ? "true" : "false";
  if (type.op == spv::OpTypeInt) return IntegerText(word, type.is_signed);
  return FloatText(word);
}

std::string TypeNames::ConstantText(uint32_t id) {
  const uint32_t type = module_.TypeIdOf(id);
  if (const auto word = module_.WordOf(id)) return Literal(type, *word);
  const Instruction* constant = module_.Global(id);
  std::string text = NameOf(type) + "(";
  if (constant != nullptr && constant->op != spv::OpConstantNull) {
    for (const uint32_t part : constant->operands) text += ConstantText(part) + ", ";
  }
  return text + ")";
}

std::string TypeNames::Declarations() const {
  std::string text;
  for (const auto& [members, name] : structs_) text += "struct " + name + " { " + members + "}\n";
  return text;
}

}  // namespace rullama::webgpu

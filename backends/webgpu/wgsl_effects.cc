#include <rullama/sdk/backend.h>

#include "backends/webgpu/wgsl_function.h"

namespace rullama::webgpu {
namespace {

constexpr uint32_t kWordBytes = 4;
constexpr uint32_t kHalfBits = 16;
constexpr uint32_t kFourBytes = 16;

// The alignment that an OpLoad or OpStore promises, whose memory operands begin at `at`.
uint32_t AlignmentOf(const Instruction& instruction, size_t at) {
  const bool aligned =
      at + 1 < instruction.operands.size() && (instruction[at] & spv::MemoryAccessAlignedMask) != 0;
  return aligned ? instruction[at + 1] : 0;
}

}  // namespace

bool WgslFunction::Effect(const Instruction& instruction) {
  const std::string name = "v" + std::to_string(instruction.result);
  switch (instruction.op) {
    case spv::OpVariable:
      places_[instruction.result] = {name, module_.TypeOf(instruction.type).of};
      values_[instruction.result] = {"&" + name};
      declarations_ +=
          "var " + name + ": " + types_.NameOf(places_[instruction.result].type) + ";\n";
      return true;
    case spv::OpAccessChain:
      Chain(instruction);
      return true;
    case spv::OpLoad:
      Load(instruction);
      return true;
    case spv::OpStore:
      Store(instruction);
      return true;
    case spv::OpFunctionCall:
      Call(instruction);
      return true;
    case spv::OpBitcast:
    case spv::OpCopyLogical:
      Bitcast(instruction);
      return true;
    case spv::OpControlBarrier:
      code_ += "workgroupBarrier();\n";
      return true;
    case spv::OpMemoryBarrier:
      code_ += "storageBarrier();\n";
      return true;
    case spv::OpAtomicIAdd:
      Atomic(instruction, "atomicAdd", false);
      return true;
    case spv::OpAtomicUMin:
      Atomic(instruction, "atomicMin", false);
      return true;
    case spv::OpAtomicUMax:
      Atomic(instruction, "atomicMax", false);
      return true;
    case spv::OpAtomicSMin:
      Atomic(instruction, "atomicMin", true);
      return true;
    case spv::OpAtomicSMax:
      Atomic(instruction, "atomicMax", true);
      return true;
    default:
      return false;
  }
}

spv::StorageClass WgslFunction::StorageOf(uint32_t pointer) const {
  return module_.TypeOf(module_.TypeIdOf(pointer)).storage;
}

WgslFunction::Place WgslFunction::PlaceOf(uint32_t pointer) {
  if (const auto found = places_.find(pointer); found != places_.end()) return found->second;
  const Instruction* variable = module_.Global(pointer);
  if (variable == nullptr || variable->op != spv::OpVariable) {
    throw sdk::Error(RL_INTERNAL, "a shader has pointer " + std::to_string(pointer) + " too early");
  }
  needs_.variables.insert(pointer);
  return {"g" + std::to_string(pointer), module_.TypeOf(variable->type).of,
          atomics_.count(pointer) > 0};
}

void WgslFunction::Chain(const Instruction& instruction) {
  const uint32_t base = instruction[0];
  if (StorageOf(base) == spv::StorageClassPhysicalStorageBuffer) return ChainOfAddress(instruction);
  Place place = PlaceOf(base);
  for (const uint32_t index : instruction.operands.subspan(1)) {
    const Type& whole = module_.TypeOf(place.type);
    const Value at = ValueOf(index);
    if (whole.op == spv::OpTypeStruct) {
      place.text += ".m" + std::to_string(at.word.value());
      place.offset += whole.offsets.at(at.word.value());
      place.type = whole.members.at(at.word.value());
      continue;
    }
    place.text += "[" + at.text + "]";
    if (StorageOf(base) == spv::StorageClassPushConstant) {
      const uint32_t bytes = whole.op == spv::OpTypeVector ? kWordBytes : whole.stride;
      place.offset += at.word.value() * bytes;
    }
    place.type = whole.of;
  }
  places_[instruction.result] = place;
}

void WgslFunction::ChainOfAddress(const Instruction& instruction) {
  const Value base = ValueOf(instruction[0]);
  uint32_t type = module_.TypeOf(module_.TypeIdOf(instruction[0])).of;
  uint32_t offset = 0;
  std::string text;
  for (const uint32_t index : instruction.operands.subspan(1)) {
    const Type& whole = module_.TypeOf(type);
    const Value at = ValueOf(index);
    if (whole.op == spv::OpTypeStruct) {
      offset += whole.offsets.at(at.word.value());
      type = whole.members.at(at.word.value());
      continue;
    }
    const uint32_t bytes = whole.op == spv::OpTypeVector ? kWordBytes : whole.stride;
    if (at.word) {
      offset += *at.word * bytes;
    } else {
      text += " + " + As(index, false) + " * " + std::to_string(bytes) + "u";
    }
    type = whole.of;
  }
  const bool moves = offset > 0 || !text.empty();
  if (offset > 0) text += " + " + std::to_string(offset) + "u";
  Define(instruction, "vec2<u32>(" + base.text + ".x" + text + ", " + base.text + ".y)");
  Value& value = values_[instruction.result];
  value.binding = base.binding;
  if (!moves) value.offset = base.offset;
}

std::optional<uint32_t> WgslFunction::BindingAt(uint32_t offset) const {
  const auto found = source_.bindings.find(offset);
  if (found == source_.bindings.end()) return std::nullopt;
  return found->second;
}

std::string WgslFunction::Read(const std::string& function, const Value& address,
                               const std::string& index) {
  if (address.binding) return function + std::to_string(*address.binding) + "(" + index + ")";
  needs_.unknown_bindings = true;
  return function + "(" + address.text + ".y, " + index + ")";
}

std::string WgslFunction::Word(const Value& address, const std::string& index) {
  if (address.binding == kArgumentsAddress) return "rl_arguments[" + index + "]";
  if (address.binding == kNullAddress) return "0u";
  return Read("rl_load", address, index);
}

bool WgslFunction::IsFour(uint32_t type_id, uint32_t alignment) const {
  const Type& type = module_.TypeOf(type_id);
  return type.op == spv::OpTypeVector && type.count == 4 && alignment % kFourBytes == 0 &&
         alignment > 0;
}

std::string WgslFunction::Compose(const Value& address, const std::string& base, uint32_t type_id,
                                  uint32_t offset, std::optional<uint32_t> arguments) {
  const Type& type = module_.TypeOf(type_id);
  const std::string index = base + " + " + std::to_string(offset / kWordBytes) + "u";
  const auto part = [&](uint32_t of, uint32_t at) {
    const auto in_arguments = arguments ? std::optional(*arguments + at) : std::nullopt;
    return Compose(address, base, of, offset + at, in_arguments);
  };
  switch (type.op) {
    case spv::OpTypeInt:
    case spv::OpTypeFloat: {
      const std::string name = types_.NameOf(type_id);
      const std::string word = Word(address, index);
      return name == "u32" ? word : "bitcast<" + name + ">(" + word + ")";
    }
    case spv::OpTypeVector:
    case spv::OpTypeArray: {
      if (arguments && type.count == 2) {
        // An address.
        if (const auto binding = BindingAt(*arguments)) {
          return "vec2<u32>(" + part(type.of, 0) + ", " + std::to_string(*binding) + "u)";
        }
      }
      std::string text = types_.NameOf(type_id) + "(";
      const uint32_t bytes = type.op == spv::OpTypeVector ? kWordBytes : type.stride;
      for (uint32_t i = 0; i < type.count; ++i) text += part(type.of, i * bytes) + ", ";
      return text + ")";
    }
    case spv::OpTypeStruct: {
      std::string text = types_.NameOf(type_id) + "(";
      for (size_t i = 0; i < type.members.size(); ++i) {
        text += part(type.members[i], type.offsets[i]) + ", ";
      }
      return text + ")";
    }
    default:
      throw sdk::Error(RL_INTERNAL, "a shader loads type " + std::to_string(type.op));
  }
}

void WgslFunction::Load(const Instruction& instruction) {
  const uint32_t pointer = instruction[0];
  const spv::StorageClass storage = StorageOf(pointer);
  if (storage == spv::StorageClassPhysicalStorageBuffer) {
    const Value address = ValueOf(pointer);
    const Type& type = module_.TypeOf(instruction.type);
    const std::string base = NewName();
    if (type.op == spv::OpTypeInt && type.width == kHalfBits) {
      const std::string word = Word(address, address.text + ".x >> 2u");
      return Define(instruction, "(" + word + " >> ((" + address.text + ".x & 2u) * 8u)) & 65535u");
    }
    code_ += "let " + base + " = " + address.text + ".x >> 2u;\n";
    const bool in_arguments = address.binding == kArgumentsAddress;
    if (!in_arguments && address.binding != kNullAddress &&
        IsFour(instruction.type, AlignmentOf(instruction, 1))) {
      const std::string name = types_.NameOf(instruction.type);
      return Define(instruction,
                    "bitcast<" + name + ">(" + Read("rl_load_four", address, base) + ")");
    }
    return Define(instruction, Compose(address, base, instruction.type, 0,
                                       in_arguments ? address.offset : std::nullopt));
  }
  const Place place = PlaceOf(pointer);
  if (storage != spv::StorageClassPushConstant) {
    return Define(instruction, place.atomic ? "atomicLoad(&" + place.text + ")" : place.text);
  }
  Value arguments;
  arguments.binding = kArgumentsAddress;
  const std::string base = std::to_string(place.offset / kWordBytes) + "u";
  Define(instruction, Compose(arguments, base, instruction.type, 0, place.offset));
  Value& value = values_[instruction.result];
  value.binding = BindingAt(place.offset);
  if (value.binding == kArgumentsAddress) value.offset = place.offset + 2 * kWordBytes;
}

void WgslFunction::StoreAt(const Value& address, uint32_t type_id, uint32_t alignment,
                           const std::string& value) {
  if (address.binding == kNullAddress) return;
  const Type& type = module_.TypeOf(type_id);
  const auto store = [&](const char* what, const std::string& at, const std::string& word) {
    const bool known = address.binding.has_value();
    if (!known) needs_.unknown_bindings = true;
    code_ += std::string("rl_") + what +
             (known ? std::to_string(*address.binding) + "(" : "(" + address.text + ".y, ");
    code_ += at + ", " + word + ");\n";
  };
  if (type.op == spv::OpTypeInt && type.width == kHalfBits) {
    needs_.halves = true;
    return store("store_half", address.text + ".x", value);
  }
  const std::string base = NewName();
  code_ += "let " + base + " = " + address.text + ".x >> 2u;\n";
  if (type.op != spv::OpTypeVector) return store("store", base, "bitcast<u32>(" + value + ")");
  if (IsFour(type_id, alignment)) {
    return store("store_four", base, "bitcast<vec4<u32>>(" + value + ")");
  }
  for (uint32_t i = 0; i < type.count; ++i) {
    const std::string at = std::to_string(i);
    store("store", base + " + " + at + "u", "bitcast<u32>(" + value + "[" + at + "])");
  }
}

void WgslFunction::Store(const Instruction& instruction) {
  const uint32_t pointer = instruction[0], value = instruction[1];
  if (StorageOf(pointer) == spv::StorageClassPhysicalStorageBuffer) {
    return StoreAt(ValueOf(pointer), module_.TypeIdOf(value), AlignmentOf(instruction, 2),
                   TextOf(value));
  }
  const Place place = PlaceOf(pointer);
  if (place.atomic) {
    code_ += "atomicStore(&" + place.text + ", " + AsType(value, place.type) + ");\n";
  } else {
    code_ += place.text + " = " + TextOf(value) + ";\n";
  }
}

void WgslFunction::Call(const Instruction& instruction) {
  needs_.functions.insert(instruction[0]);
  std::string text = "rl_f" + std::to_string(instruction[0]) + "(";
  for (const uint32_t argument : instruction.operands.subspan(1)) {
    text += TextOf(argument) + ", ";
  }
  text += ")";
  if (module_.TypeOf(instruction.type).op == spv::OpTypeVoid) {
    code_ += text + ";\n";
  } else {
    Define(instruction, text);
  }
}

void WgslFunction::Atomic(const Instruction& instruction, std::string_view function,
                          bool is_signed) {
  const Place place = PlaceOf(instruction[0]);
  const bool atomic_signed = IsSigned(place.type);
  if (instruction.op != spv::OpAtomicIAdd && atomic_signed != is_signed) {
    throw sdk::Error(RL_INTERNAL, "a shader compares atomics as if they had another sign");
  }
  constexpr size_t kValueAt = 3;
  Define(instruction, std::string(function) + "(&" + place.text + ", " +
                          As(instruction[kValueAt], atomic_signed) + ")");
}

}  // namespace rullama::webgpu

#define SPV_ENABLE_UTILITY_CODE  // HasResultAndType
#include "backends/webgpu/spirv.h"

#include <rullama/sdk/backend.h>

#include <array>
#include <string>

namespace rullama::webgpu {
namespace {

constexpr size_t kHeaderWords = 5;
constexpr uint32_t kMagic = 0x07230203;
constexpr uint32_t kWordBits = 32;

[[noreturn]] void Fail(const std::string& why) {
  throw sdk::Error(RL_INTERNAL, "a shader is not SPIR-V of glslangValidator: " + why);
}

Instruction Decode(std::span<const uint32_t> words) {
  Instruction instruction;
  instruction.op = static_cast<spv::Op>(words[0] & spv::OpCodeMask);
  bool has_result = false, has_type = false;
  spv::HasResultAndType(instruction.op, &has_result, &has_type);
  size_t next = 1;
  if (has_type) instruction.type = words[next++];
  if (has_result) instruction.result = words[next++];
  instruction.operands = words.subspan(next);
  return instruction;
}

bool EndsBlock(spv::Op op) {
  return op == spv::OpBranch || op == spv::OpBranchConditional || op == spv::OpSwitch ||
         op == spv::OpReturn || op == spv::OpReturnValue || op == spv::OpUnreachable;
}

}  // namespace

Module::Module(std::span<const uint32_t> code, std::span<const uint32_t> constants)
    : constants_(constants) {
  if (code.size() < kHeaderWords || code[0] != kMagic) Fail("it has another beginning");
  for (size_t at = kHeaderWords; at < code.size();) {
    const size_t count = code[at] >> spv::WordCountShift;
    if (count == 0 || count > code.size() - at) Fail("an instruction has no end");
    const Instruction instruction = Decode(code.subspan(at, count));
    if (!AddToFunction(instruction)) Add(instruction);
    at += count;
  }
  if (functions_.count(entry_) == 0) Fail("it has no entry point");
}

void Module::Add(const Instruction& instruction) {
  if (instruction.result != 0 && instruction.type != 0) {
    type_of_[instruction.result] = instruction.type;
  }
  switch (instruction.op) {
    case spv::OpEntryPoint:
      entry_ = instruction[1];
      return;
    case spv::OpDecorate:
      return AddDecoration(instruction);
    case spv::OpMemberDecorate:
      return AddMemberDecoration(instruction);
    case spv::OpVariable:
      globals_[instruction.result] = instruction;
      return;
    default:
      if (instruction.op >= spv::OpTypeVoid && instruction.op <= spv::OpTypeForwardPointer) {
        AddType(instruction);
      } else if (instruction.op >= spv::OpConstantTrue && instruction.op <= spv::OpSpecConstantOp) {
        AddConstant(instruction);
      }
  }
}

void Module::AddDecoration(const Instruction& instruction) {
  const uint32_t id = instruction[0];
  switch (instruction[1]) {
    case spv::DecorationSpecId:
      spec_ids_[id] = instruction[2];
      return;
    case spv::DecorationArrayStride:
      strides_[id] = instruction[2];
      return;
    case spv::DecorationBuiltIn:
      builtins_[id] = static_cast<spv::BuiltIn>(instruction[2]);
      return;
    default:
      return;
  }
}

void Module::AddMemberDecoration(const Instruction& instruction) {
  if (instruction[2] == spv::DecorationOffset) {
    offsets_[instruction[0]][instruction[1]] = instruction[3];
  }
}

void Module::AddType(const Instruction& instruction) {
  if (instruction.op == spv::OpTypeForwardPointer) return;
  Type type{.op = instruction.op};
  switch (instruction.op) {
    case spv::OpTypeInt:
      type.is_signed = instruction[1] != 0;
      [[fallthrough]];
    case spv::OpTypeFloat:
      type.width = instruction[0];
      break;
    case spv::OpTypeVector:
      type.of = instruction[0];
      type.count = instruction[1];
      break;
    case spv::OpTypeArray:
      type.count = WordOf(instruction[1]).value_or(0);
      [[fallthrough]];
    case spv::OpTypeRuntimeArray:
      type.of = instruction[0];
      type.stride = strides_[instruction.result];
      break;
    case spv::OpTypePointer:
      type.storage = static_cast<spv::StorageClass>(instruction[0]);
      type.of = instruction[1];
      break;
    case spv::OpTypeStruct:
      type.members.assign(instruction.operands.begin(), instruction.operands.end());
      for (uint32_t i = 0; i < type.members.size(); ++i) {
        type.offsets.push_back(offsets_[instruction.result][i]);
      }
      break;
    default:
      break;
  }
  types_[instruction.result] = type;
}

void Module::AddConstant(const Instruction& instruction) {
  const uint32_t id = instruction.result;
  globals_[id] = instruction;
  switch (instruction.op) {
    case spv::OpConstantTrue:
      words_[id] = 1;
      return;
    case spv::OpConstantFalse:
      words_[id] = 0;
      return;
    case spv::OpConstant:
      words_[id] = instruction[0];
      return;
    case spv::OpSpecConstant: {
      const auto spec = spec_ids_.find(id);
      const bool given = spec != spec_ids_.end() && spec->second < constants_.size();
      words_[id] = given ? constants_[spec->second] : instruction[0];
      return;
    }
    case spv::OpSpecConstantComposite:
      if (BuiltInOf(id) == spv::BuiltInWorkgroupSize) threads_ = words_.at(instruction[0]);
      return;
    case spv::OpSpecConstantOp:
      break;
    default:
      return;
  }
  const auto op = static_cast<spv::Op>(instruction[0]);
  const auto operands = instruction.operands.subspan(1);
  if (op == spv::OpCompositeExtract) {
    words_[id] = words_.at(globals_.at(operands[0])[operands[1]]);
    return;
  }
  std::vector<uint32_t> values;
  for (const uint32_t operand : operands) values.push_back(words_.at(operand));
  const auto word = Fold(op, values);
  if (!word) Fail("a constant is made by operation " + std::to_string(op));
  words_[id] = *word;
}

bool Module::AddToFunction(const Instruction& instruction) {
  if (instruction.op == spv::OpFunction) {
    reading_ = &functions_[instruction.result];
    reading_->id = instruction.result;
    reading_->type = instruction.type;
    return true;
  }
  if (reading_ == nullptr) return false;
  if (instruction.result != 0 && instruction.type != 0) {
    type_of_[instruction.result] = instruction.type;
  }
  if (instruction.op == spv::OpFunctionEnd) {
    reading_ = nullptr;
  } else if (instruction.op == spv::OpFunctionParameter) {
    reading_->parameters.push_back(instruction);
  } else if (instruction.op == spv::OpLabel) {
    block_ = &reading_->blocks[instruction.result];
    if (reading_->first == 0) reading_->first = instruction.result;
  } else if (instruction.op == spv::OpLoopMerge || instruction.op == spv::OpSelectionMerge) {
    block_->merge = instruction;
  } else if (EndsBlock(instruction.op)) {
    block_->end = instruction;
  } else if (instruction.op != spv::OpLine && instruction.op != spv::OpNoLine) {
    block_->body.push_back(instruction);
  }
  return true;
}

const Instruction* Module::Global(uint32_t id) const {
  const auto found = globals_.find(id);
  return found == globals_.end() ? nullptr : &found->second;
}

std::optional<uint32_t> Module::WordOf(uint32_t id) const {
  const auto found = words_.find(id);
  if (found == words_.end()) return std::nullopt;
  return found->second;
}

std::optional<spv::BuiltIn> Module::BuiltInOf(uint32_t id) const {
  const auto found = builtins_.find(id);
  if (found == builtins_.end()) return std::nullopt;
  return found->second;
}

namespace {

// The result of a comparison or of an operation on booleans; none of others.
std::optional<bool> Compare(spv::Op op, uint32_t a, uint32_t b) {
  const auto sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
  switch (op) {
    case spv::OpIEqual:
    case spv::OpLogicalEqual:
      return a == b;
    case spv::OpINotEqual:
    case spv::OpLogicalNotEqual:
      return a != b;
    case spv::OpULessThan:
      return a < b;
    case spv::OpULessThanEqual:
      return a <= b;
    case spv::OpUGreaterThan:
      return a > b;
    case spv::OpUGreaterThanEqual:
      return a >= b;
    case spv::OpSLessThan:
      return sa < sb;
    case spv::OpSLessThanEqual:
      return sa <= sb;
    case spv::OpSGreaterThan:
      return sa > sb;
    case spv::OpSGreaterThanEqual:
      return sa >= sb;
    case spv::OpLogicalAnd:
      return a != 0 && b != 0;
    case spv::OpLogicalOr:
      return a != 0 || b != 0;
    default:
      return std::nullopt;
  }
}

// A division by zero, in code that a specialisation does not reach, gives 0.
std::optional<uint32_t> Compute(spv::Op op, uint32_t a, uint32_t b) {
  switch (op) {
    case spv::OpIAdd:
      return a + b;
    case spv::OpISub:
      return a - b;
    case spv::OpIMul:
      return a * b;
    case spv::OpUDiv:
      return b == 0 ? 0 : a / b;
    case spv::OpUMod:
      return b == 0 ? 0 : a % b;
    case spv::OpBitwiseAnd:
      return a & b;
    case spv::OpBitwiseOr:
      return a | b;
    case spv::OpBitwiseXor:
      return a ^ b;
    case spv::OpShiftLeftLogical:
      return b < kWordBits ? a << b : 0;
    case spv::OpShiftRightLogical:
      return b < kWordBits ? a >> b : 0;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<uint32_t> Fold(spv::Op op, std::span<const uint32_t> operands) {
  if (op == spv::OpSelect) return operands[0] != 0 ? operands[1] : operands[2];
  if (operands.size() == 1) {
    if (op == spv::OpLogicalNot) return operands[0] == 0 ? 1 : 0;
    if (op == spv::OpNot) return ~operands[0];
    if (op == spv::OpBitcast || op == spv::OpUConvert) return operands[0];
    return std::nullopt;
  }
  if (operands.size() != 2) return std::nullopt;
  if (const auto result = Compare(op, operands[0], operands[1])) return *result ? 1 : 0;
  return Compute(op, operands[0], operands[1]);
}

}  // namespace rullama::webgpu

#include "backends/vulkan/instructions.h"

#include <rullama/sdk/backend.h>

#include <memory>
#include <utility>

namespace rullama::vulkan {
namespace {

bool IsId(spv_operand_type_t type) {
  return type == SPV_OPERAND_TYPE_ID || type == SPV_OPERAND_TYPE_TYPE_ID ||
         type == SPV_OPERAND_TYPE_RESULT_ID || type == SPV_OPERAND_TYPE_MEMORY_SEMANTICS_ID ||
         type == SPV_OPERAND_TYPE_SCOPE_ID;
}

spv_result_t OnInstruction(void* user_data, const spv_parsed_instruction_t* parsed) {
  Instruction instruction;
  instruction.op = static_cast<spv::Op>(parsed->opcode);
  instruction.words.assign(parsed->words, parsed->words + parsed->num_words);
  instruction.type = parsed->type_id;
  instruction.result = parsed->result_id;
  for (uint16_t i = 0; i < parsed->num_operands; ++i) {
    if (IsId(parsed->operands[i].type)) instruction.ids.push_back(parsed->operands[i].offset);
  }
  static_cast<std::vector<Instruction>*>(user_data)->push_back(std::move(instruction));
  return SPV_SUCCESS;
}

}  // namespace

std::vector<Instruction> Parse(const Spirv& code) {
  const std::unique_ptr<spv_context_t, decltype(&spvContextDestroy)> context(
      spvContextCreate(kSpirvTarget), spvContextDestroy);
  std::vector<Instruction> instructions;
  spv_diagnostic diagnostic = nullptr;
  const spv_result_t result = spvBinaryParse(context.get(), &instructions, code.data(), code.size(),
                                             nullptr, OnInstruction, &diagnostic);
  const std::string why = diagnostic != nullptr ? std::string(": ") + diagnostic->error : "";
  spvDiagnosticDestroy(diagnostic);
  if (result != SPV_SUCCESS) throw sdk::Error(RL_INTERNAL, "a shader is not SPIR-V" + why);
  return instructions;
}

std::string NameOf(spv::Op op) { return std::string("Op") + spvOpcodeString(op); }

void SetOp(spv::Op op, Spirv& words) {
  words[0] = static_cast<uint32_t>(words.size() << spv::WordCountShift) | static_cast<uint32_t>(op);
}

Spirv Words(spv::Op op, std::initializer_list<uint32_t> operands) {
  Spirv words = {0};
  words.insert(words.end(), operands);
  SetOp(op, words);
  return words;
}

}  // namespace rullama::vulkan

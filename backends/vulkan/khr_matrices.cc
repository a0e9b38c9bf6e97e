#include "backends/vulkan/khr_matrices.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/gpu/target.h"
#include "backends/vulkan/matrix_uses.h"

namespace rullama::vulkan {
namespace {

constexpr uint32_t kRowMajor = 0, kColumnMajor = 1;
constexpr uint32_t kConstants = 3;  // 0, 1 and 2: of a layout or a MatrixUse

constexpr std::string_view kNvExtension = "SPV_NV_cooperative_matrix";
constexpr std::string_view kKhrExtension = "SPV_KHR_cooperative_matrix";

using Uses = std::vector<MatrixUse>;  // of the types of matrices within a type

// The words of a type that are types of its parts begin here; the last one of an array is its
// length, which is not a type.
size_t PartsOf(const Instruction& type) {
  if (type.op == spv::OpTypePointer) return 3;
  return type.op == spv::OpTypeCooperativeMatrixNV ? type.words.size() : 2;
}

// Whether an instruction stands in the first block of a function before all others.
bool BeginsFunctions(spv::Op op) {
  return op == spv::OpVariable || op == spv::OpLine || op == spv::OpNoLine;
}

[[noreturn]] void FailOnType(const Instruction& type, MatrixUse use) {
  const std::string side = std::to_string(gpu::kMatrixSide);
  FailOnMatrices("matrices of type %" + std::to_string(type.result) + " are " + NameOf(use) +
                 "; devices are only asked for A and B in f16 and accumulators in f32, of " + side +
                 " x " + side + " numbers in a subgroup");
}

class Writer {
 public:
  explicit Writer(const Spirv& code)
      : instructions_(Parse(code)), uses_(instructions_), bound_(code[kBoundAt]) {
    result_.assign(code.begin(), code.begin() + kHeaderWords);
  }
  Spirv Write();

 private:
  // The type of KHR in place of a type of NV, one for each combination of uses of its matrices.
  uint32_t TypeFor(uint32_t type, const Uses& uses);
  uint32_t TypeOfValue(uint32_t id, uint32_t type);
  uint32_t TypeOfPart(uint32_t part, uint32_t whole, const Uses& uses);
  uint32_t TypeOfFunction(size_t at);
  void ChooseTypes();
  void ChooseLength(const Instruction& instruction);
  [[nodiscard]] bool IsLength(uint32_t id) const;
  [[nodiscard]] bool HasLength(const Instruction& instruction) const;
  [[nodiscard]] uint32_t LayoutOf(uint32_t is_column_major) const;

  void WriteGlobal(const Instruction& instruction);
  void WriteTypes(const Instruction& instruction);
  void WriteConstants(uint32_t type);
  size_t WriteFunction(size_t at);
  void WriteLengths(std::map<uint32_t, uint32_t>& ids);
  void WriteWithNewTypes(Spirv words, const Instruction& instruction);
  void WriteAccess(const Instruction& instruction);
  void WriteOne(const Instruction& instruction);
  uint32_t NewId() { return bound_++; }

  const std::vector<Instruction> instructions_;
  MatrixUses uses_;
  uint32_t bound_;
  Spirv result_;
  uint32_t constants_ = 0;  // the id of the first; 0: not written yet
  std::unordered_map<uint32_t, std::map<Uses, uint32_t>> types_;  // by type of NV
  std::map<Spirv, uint32_t> function_types_;                      // by words, with 0 as the id
  std::unordered_map<uint32_t, uint32_t> new_types_;              // by value or function
  std::unordered_map<uint32_t, uint32_t> type_of_function_;       // by function
  // Constants that are numbers of elements, and values computed from them. KHR has the former as
  // instructions only, so that functions compute both.
  std::vector<const Instruction*> lengths_;
  std::unordered_map<uint32_t, uint32_t> length_types_;  // by type of NV
};

// ---- types --------------------------------------------------------------------------------------

uint32_t Writer::TypeFor(uint32_t type, const Uses& uses) {
  if (uses.empty()) return type;
  std::map<Uses, uint32_t>& known = types_[type];
  const auto [found, fresh] = known.try_emplace(uses, 0);
  if (!fresh) return found->second;
  const uint32_t id = found->second = known.size() == 1 ? type : NewId();
  const Instruction& definition = uses_.Definition(type);
  for (size_t i = PartsOf(definition); i < definition.words.size(); ++i) {
    static_cast<void>(TypeOfPart(definition.words[i], type, uses));
  }
  return id;
}

uint32_t Writer::TypeOfPart(uint32_t part, uint32_t whole, const Uses& uses) {
  const std::vector<uint32_t>& all = uses_.Within(whole);
  Uses own;
  for (const uint32_t matrix : uses_.Within(part)) {
    own.push_back(uses[static_cast<size_t>(std::ranges::find(all, matrix) - all.begin())]);
  }
  return TypeFor(part, own);
}

uint32_t Writer::TypeOfValue(uint32_t id, uint32_t type) {
  Uses uses;
  for (const uint32_t matrix : uses_.Within(type)) uses.push_back(uses_.Of(id, matrix));
  return TypeFor(type, uses);
}

// Parameters of the same type of NV may have different ones of KHR.
uint32_t Writer::TypeOfFunction(size_t at) {
  const Instruction& function = instructions_[at];
  const uint32_t type = function.words[4];
  if (uses_.Within(type).empty()) return type;
  Spirv words = {0, 0, TypeOfValue(function.result, function.type)};
  for (++at; at < instructions_.size(); ++at) {
    const Instruction& parameter = instructions_[at];
    if (parameter.op == spv::OpLabel) break;
    if (parameter.op != spv::OpFunctionParameter) continue;
    words.push_back(TypeOfValue(parameter.result, parameter.type));
  }
  SetOp(spv::OpTypeFunction, words);
  const auto [found, fresh] = function_types_.try_emplace(words, 0);
  if (fresh) found->second = NewId();
  return found->second;
}

void Writer::ChooseLength(const Instruction& instruction) {
  const bool is_constant = instruction.op == spv::OpSpecConstantOp;
  if (is_constant && instruction.words[3] != spv::OpCooperativeMatrixLengthNV) {
    if (HasLength(instruction)) lengths_.push_back(&instruction);
    return;
  }
  const uint32_t type = instruction.words[is_constant ? 4 : 3];
  length_types_[type] = TypeFor(type, {uses_.OfElements(type)});
  if (is_constant) lengths_.push_back(&instruction);
}

void Writer::ChooseTypes() {
  for (size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = instructions_[i];
    if (instruction.op == spv::OpFunction) {
      type_of_function_[instruction.result] = TypeOfFunction(i);
    }
    if (instruction.op == spv::OpSpecConstantOp ||
        instruction.op == spv::OpCooperativeMatrixLengthNV) {
      ChooseLength(instruction);
    }
    if (uses_.Within(instruction.type).empty()) continue;
    new_types_[instruction.result] = TypeOfValue(instruction.result, instruction.type);
  }
}

bool Writer::IsLength(uint32_t id) const {
  return std::ranges::any_of(lengths_, [&](const Instruction* l) { return l->result == id; });
}

// Whether an instruction is one of lengths_ or takes one.
bool Writer::HasLength(const Instruction& instruction) const {
  return std::ranges::any_of(instruction.ids,
                             [&](uint16_t at) { return IsLength(instruction.words[at]); });
}

// ---- instructions -------------------------------------------------------------------------------

void Writer::WriteConstants(uint32_t type) {
  constants_ = bound_;
  for (uint32_t i = 0; i < kConstants; ++i) {
    Append(result_, Words(spv::OpConstant, {type, NewId(), i}));
  }
}

void Writer::WriteTypes(const Instruction& instruction) {
  const bool is_matrix = instruction.op == spv::OpTypeCooperativeMatrixNV;
  if (is_matrix && constants_ == 0) WriteConstants(uses_.Definition(instruction.words[3]).type);
  if (instruction.op == spv::OpTypeFunction) return;  // WriteFunction
  const auto found = types_.find(instruction.result);
  if (found == types_.end()) return;  // nothing is of this type
  for (const auto& [uses, id] : found->second) {
    Spirv words = instruction.words;
    words[1] = id;
    for (size_t i = PartsOf(instruction); i < words.size(); ++i) {
      words[i] = TypeOfPart(words[i], instruction.result, uses);
    }
    if (is_matrix) {
      if (!uses_.Allows(instruction.result, uses.front())) FailOnType(instruction, uses.front());
      words.push_back(constants_ + static_cast<uint32_t>(uses.front()));
      SetOp(khr::kOpTypeMatrix, words);
    }
    Append(result_, words);
  }
}

void Writer::WriteWithNewTypes(Spirv words, const Instruction& instruction) {
  const auto found = new_types_.find(instruction.result);
  if (instruction.result != 0 && found != new_types_.end()) words[1] = found->second;
  Append(result_, words);
}

uint32_t Writer::LayoutOf(uint32_t is_column_major) const {
  switch (uses_.Definition(is_column_major).op) {
    case spv::OpConstantTrue:
      return constants_ + kColumnMajor;
    case spv::OpConstantFalse:
      return constants_ + kRowMajor;
    default:
      FailOnMatrices("whether a matrix is stored by columns is not a constant");
  }
}

// NV has the stride, then the layout; KHR has them the other way round.
void Writer::WriteAccess(const Instruction& instruction) {
  const bool loads = instruction.op == spv::OpCooperativeMatrixLoadNV;
  const size_t stride_at = loads ? 4 : 3;
  Spirv words = instruction.words;
  words[stride_at] = LayoutOf(words[stride_at + 1]);
  words[stride_at + 1] = instruction.words[stride_at];
  SetOp(loads ? khr::kOpLoad : khr::kOpStore, words);
  WriteWithNewTypes(std::move(words), instruction);
}

void Writer::WriteOne(const Instruction& instruction) {
  Spirv words = instruction.words;
  switch (instruction.op) {
    case spv::OpCooperativeMatrixLoadNV:
    case spv::OpCooperativeMatrixStoreNV:
      return WriteAccess(instruction);
    case spv::OpCooperativeMatrixMulAddNV:
      SetOp(khr::kOpMulAdd, words);
      break;
    case spv::OpCooperativeMatrixLengthNV:
      SetOp(khr::kOpLength, words);
      words[3] = length_types_.at(words[3]);
      break;
    case spv::OpFunction:
      words[4] = type_of_function_.at(instruction.result);
      break;
    default:
      break;
  }
  WriteWithNewTypes(std::move(words), instruction);
}

void Writer::WriteGlobal(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  switch (instruction.op) {
    case spv::OpCapability:
      Append(result_, words[1] == spv::CapabilityCooperativeMatrixNV
                          ? Words(spv::OpCapability, {khr::kCapability})
                          : words);
      return;
    case spv::OpExtension: {
      if (reinterpret_cast<const char*>(&words[1]) != kNvExtension) break;
      Spirv extension(2 + kKhrExtension.size() / sizeof(uint32_t));
      std::memcpy(&extension[1], kKhrExtension.data(), kKhrExtension.size());
      SetOp(spv::OpExtension, extension);
      Append(result_, extension);
      return;
    }
    case spv::OpName:
    case spv::OpMemberName:
    case spv::OpDecorate: {
      const bool is_unused_type = !uses_.Within(words[1]).empty() && !types_.contains(words[1]);
      if (is_unused_type || IsLength(words[1])) return;
      break;
    }
    default:
      break;
  }
  if (IsLength(instruction.result)) return;
  if (HasLength(instruction)) {
    FailOnMatrices(
        "an array or constant needs the number of elements, which is not a constant in KHR");
  }
  if (!uses_.Within(instruction.result).empty()) return WriteTypes(instruction);
  WriteOne(instruction);
}

void Writer::WriteLengths(std::map<uint32_t, uint32_t>& ids) {
  for (const Instruction* length : lengths_) {
    const Spirv& words = length->words;
    const uint32_t id = ids[length->result] = NewId();
    const auto op = static_cast<spv::Op>(words[3]);
    if (op == spv::OpCooperativeMatrixLengthNV) {
      Append(result_, Words(khr::kOpLength, {words[1], id, length_types_.at(words[4])}));
      continue;
    }
    Spirv computed = words;
    for (const uint16_t i : length->ids) {
      const auto found = ids.find(words[i]);
      if (found != ids.end()) computed[i] = found->second;
    }
    computed.erase(computed.begin() + 3);  // `op`
    SetOp(op, computed);
    Append(result_, computed);
  }
}

// Writes a function; returns the place after it. It computes the numbers of elements after the
// variables of its first block, if it uses any.
size_t Writer::WriteFunction(size_t at) {
  size_t end = at;
  bool has_lengths = false;
  do {
    if (end == instructions_.size()) FailOnMatrices("a function has no end");
    has_lengths = has_lengths || HasLength(instructions_[end]);
  } while (instructions_[end++].op != spv::OpFunctionEnd);
  std::map<uint32_t, uint32_t> ids;  // of lengths_, in this function
  bool in_block = false;
  for (; at < end; ++at) {
    Instruction instruction = instructions_[at];
    if (in_block && has_lengths && ids.empty() && !BeginsFunctions(instruction.op)) {
      WriteLengths(ids);
    }
    in_block = in_block || instruction.op == spv::OpLabel;
    if (ids.empty() && HasLength(instruction)) {
      FailOnMatrices("a variable begins as the number of elements of a matrix");
    }
    for (const uint16_t i : instruction.ids) {
      const auto found = ids.find(instruction.words[i]);
      if (found != ids.end()) instruction.words[i] = found->second;
    }
    WriteOne(instruction);
  }
  return end;
}

Spirv Writer::Write() {
  ChooseTypes();
  size_t at = 0;
  for (; at < instructions_.size() && instructions_[at].op != spv::OpFunction; ++at) {
    WriteGlobal(instructions_[at]);
  }
  for (const auto& [words, id] : function_types_) {
    Spirv type = words;
    type[1] = id;
    Append(result_, type);
  }
  while (at < instructions_.size()) at = WriteFunction(at);
  result_[kBoundAt] = bound_;
  return std::move(result_);
}

}  // namespace

std::optional<Spirv> WithKhrMatrices(const Spirv& code) {
  // The first instructions are capabilities, of two words each.
  const uint32_t capability = Words(spv::OpCapability, {0}).front();
  bool has_matrices = false, has_memory_model = false;
  for (size_t at = kHeaderWords; at + 1 < code.size() && code[at] == capability; at += 2) {
    has_matrices = has_matrices || code[at + 1] == spv::CapabilityCooperativeMatrixNV;
    has_memory_model = has_memory_model || code[at + 1] == spv::CapabilityVulkanMemoryModel;
  }
  if (!has_matrices) return std::nullopt;
  if (!has_memory_model) FailOnMatrices("it has not the memory model of Vulkan, which KHR needs");
  return Writer(code).Write();
}

}  // namespace rullama::vulkan

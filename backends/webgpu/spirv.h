// A module of SPIR-V, as glslangValidator writes it without optimisation: its types, constants and
// functions, the latter as blocks. Constants have the values of a specialisation.
//
// Thread safety: none needed once it is made.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <spirv/unified1/spirv.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rullama::webgpu {

struct Instruction {
  spv::Op op = spv::OpNop;
  uint32_t type = 0, result = 0;            // ids; 0: none
  std::span<const uint32_t> operands = {};  // after these
  [[nodiscard]] uint32_t operator[](size_t i) const { return operands[i]; }
};

struct Block {
  std::vector<Instruction> body;          // between the label and these:
  std::optional<Instruction> merge = {};  // OpLoopMerge or OpSelectionMerge
  Instruction end = {};                   // how control leaves it
};

struct Function {
  uint32_t id = 0, type = 0;  // of the result
  std::vector<Instruction> parameters = {};
  uint32_t first = 0;  // label of its first block
  std::map<uint32_t, Block> blocks = {};
};

// A type. `of`: of elements, or what a pointer points to.
struct Type {
  spv::Op op = spv::OpTypeVoid;
  uint32_t of = 0;
  uint32_t width = 0;      // of a number, in bits
  bool is_signed = false;  // of an integer
  uint32_t count = 0;      // elements
  uint32_t stride = 0;     // bytes from one element of an array in memory to the next
  spv::StorageClass storage = spv::StorageClassMax;
  std::vector<uint32_t> members = {};  // types
  std::vector<uint32_t> offsets = {};  // of members in memory, in bytes
};

class Module {
 public:
  // `code` outlives it. `constants`: by SpecId. Throws sdk::Error(RL_INTERNAL) if it is not such a
  // module.
  Module(std::span<const uint32_t> code, std::span<const uint32_t> constants);

  [[nodiscard]] const Type& TypeOf(uint32_t type) const { return types_.at(type); }
  // The type of a value, by its id.
  [[nodiscard]] uint32_t TypeIdOf(uint32_t value) const { return type_of_.at(value); }
  [[nodiscard]] const Function& FunctionOf(uint32_t id) const { return functions_.at(id); }
  [[nodiscard]] const std::map<uint32_t, Function>& functions() const { return functions_; }
  [[nodiscard]] uint32_t entry() const { return entry_; }
  // The constant or variable outside of functions with this id, or null.
  [[nodiscard]] const Instruction* Global(uint32_t id) const;
  // The word of a scalar constant: a boolean is 0 or 1.
  [[nodiscard]] std::optional<uint32_t> WordOf(uint32_t id) const;
  [[nodiscard]] std::optional<spv::BuiltIn> BuiltInOf(uint32_t id) const;
  // The workgroup's size along the first axis.
  [[nodiscard]] uint32_t threads() const { return threads_; }

 private:
  void Add(const Instruction& instruction);
  void AddType(const Instruction& instruction);
  void AddConstant(const Instruction& instruction);
  void AddDecoration(const Instruction& instruction);
  void AddMemberDecoration(const Instruction& instruction);
  // Adds it to the function that is read, if there is one.
  bool AddToFunction(const Instruction& instruction);

  std::span<const uint32_t> constants_;
  std::map<uint32_t, Type> types_;
  std::map<uint32_t, uint32_t> strides_;
  std::map<uint32_t, std::map<uint32_t, uint32_t>> offsets_;  // by type and member
  std::unordered_map<uint32_t, uint32_t> type_of_, words_, spec_ids_;
  std::unordered_map<uint32_t, spv::BuiltIn> builtins_;
  std::unordered_map<uint32_t, Instruction> globals_;
  std::map<uint32_t, Function> functions_;
  Function* reading_ = nullptr;
  Block* block_ = nullptr;
  uint32_t entry_ = 0, threads_ = 1;
};

// The result of an operation on 32-bit integers and booleans, if it is one of those that constants
// of kernels are made with.
std::optional<uint32_t> Fold(spv::Op op, std::span<const uint32_t> operands);

}  // namespace rullama::webgpu

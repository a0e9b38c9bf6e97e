// One function of a kernel in WGSL.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backends/webgpu/spirv.h"
#include "backends/webgpu/wgsl.h"
#include "backends/webgpu/wgsl_flow.h"
#include "backends/webgpu/wgsl_types.h"

namespace rullama::webgpu {

// The variables and functions of a kernel that its code uses.
struct WgslNeeds {
  std::set<uint32_t> variables;  // outside of functions
  std::set<uint32_t> functions;
  bool halves = false;            // elements of 16 bits are stored
  bool unknown_bindings = false;  // of addresses
  bool high_products = false;     // rl_mul_hi
  bool shared_branches = false;   // rl_shared
};

class WgslFunction {
 public:
  // `atomics`: variables with atomic elements. `shared`: blocks whose branch all invocations take
  // as the first one does, in words that WGSL understands.
  WgslFunction(const Module& module, const WgslSource& source, const std::set<uint32_t>& atomics,
               const Function& function, std::set<uint32_t> shared, TypeNames& types,
               WgslNeeds& needs);
  std::string Text();
  // The blocks that the text has.
  [[nodiscard]] const Flow& flow() const { return flow_; }

 private:
  // A value that has been computed.
  struct Value {
    std::string text;
    std::optional<uint32_t> word = {};     // what a scalar is, where that is known
    std::optional<uint32_t> binding = {};  // of an address, where that is known
    std::optional<uint32_t> offset = {};   // of an address in that memory, likewise
  };
  // The place in WGSL of a pointer that is not an address.
  struct Place {
    std::string text;
    uint32_t type = 0;
    bool atomic = false;
    uint32_t offset = 0;  // in the arguments
  };
  // Where `break` and `continue` lead.
  struct Loop {
    uint32_t merge, next;
  };

  // ---- control flow (wgsl_function.cc): labels are those of blocks

  // Notes which values are used in another block than the one that computes them.
  void FindHoisted();
  // Writes blocks from `label` up to `end`. Whether control gets there. `entered`: the loop whose
  // header is `label`.
  bool Walk(uint32_t label, uint32_t end, uint32_t entered = 0);
  void WriteLoop(uint32_t label, const Block& header);
  // These return the block that follows in the text, if control gets to one.
  std::optional<uint32_t> Leave(uint32_t from, const Block& block, uint32_t end);
  std::optional<uint32_t> Choose(uint32_t from, const Block& block, uint32_t end);
  std::optional<uint32_t> ChooseExit(uint32_t from, const Block& block, uint32_t end);
  // The condition at the end of a block.
  Value ConditionOf(uint32_t from, const Block& block);
  std::optional<uint32_t> Go(uint32_t from, uint32_t target, uint32_t end);
  [[nodiscard]] bool LeavesLoop(uint32_t target) const;
  // Gives values to what the target takes from its predecessors.
  void WritePhis(uint32_t from, uint32_t target);
  void TakePhi(const Instruction& phi);
  void Write(const Block& block);
  void Write(const Instruction& instruction);

  // ---- values (wgsl_values.cc)

  Value ValueOf(uint32_t id);
  std::string TextOf(uint32_t id) { return ValueOf(id).text; }
  // The integer as one with or without a sign, or as the type has it.
  std::string As(uint32_t id, bool is_signed);
  std::string AsType(uint32_t id, uint32_t type);
  std::string Convert(const std::string& text, uint32_t type, bool to_signed);
  [[nodiscard]] bool IsSigned(uint32_t type) const;
  // The scalar type of a scalar or vector.
  [[nodiscard]] const Type& ScalarOf(uint32_t type) const;
  void Define(const Instruction& instruction, const std::string& text);
  void Declare(uint32_t id);
  std::string NewName() { return "t" + std::to_string(names_++); }
  // Whether the value is known without any code.
  bool Known(const Instruction& instruction);
  // An expression for the operation, or nothing if it is none of theirs.
  std::optional<std::string> Arithmetic(const Instruction& instruction);
  std::optional<std::string> Comparison(const Instruction& instruction);
  std::optional<std::string> Conversion(const Instruction& instruction);
  std::optional<std::string> Composite(const Instruction& instruction);
  std::string Shift(const Instruction& instruction);
  std::string Extended(const Instruction& instruction);
  std::string Shuffle(const Instruction& instruction);
  std::string Library(const Instruction& instruction);
  void Bitcast(const Instruction& instruction);

  // ---- memory and other effects (wgsl_effects.cc)

  // Whether it was one of these.
  bool Effect(const Instruction& instruction);
  Place PlaceOf(uint32_t pointer);
  void Chain(const Instruction& instruction);
  void ChainOfAddress(const Instruction& instruction);
  void Load(const Instruction& instruction);
  void Store(const Instruction& instruction);
  void StoreAt(const Value& address, uint32_t type, uint32_t alignment, const std::string& value);
  void Call(const Instruction& instruction);
  void Atomic(const Instruction& instruction, std::string_view function, bool is_signed);
  // Whether memory has it as an element: four words, aligned to as many.
  [[nodiscard]] bool IsFour(uint32_t type, uint32_t alignment) const;
  // A call of a function of the address's memory with an index, an expression.
  std::string Read(const std::string& function, const Value& address, const std::string& index);
  // The word at an index in the memory of an address.
  std::string Word(const Value& address, const std::string& index);
  // A value of the type, `offset` bytes after the word `base`. `arguments`: where it is in these,
  // if it is there and that is known.
  std::string Compose(const Value& address, const std::string& base, uint32_t type, uint32_t offset,
                      std::optional<uint32_t> arguments);
  [[nodiscard]] std::optional<uint32_t> BindingAt(uint32_t offset) const;
  [[nodiscard]] spv::StorageClass StorageOf(uint32_t pointer) const;

  const Module& module_;
  const WgslSource& source_;
  const std::set<uint32_t>& atomics_;
  const Function& function_;
  const std::set<uint32_t> shared_;
  TypeNames& types_;
  WgslNeeds& needs_;

  std::string code_, declarations_;
  std::set<uint32_t> hoisted_, declared_;
  std::map<uint32_t, Value> values_;
  std::map<uint32_t, Place> places_;
  std::map<uint32_t, std::vector<Value>> incoming_;  // of phis
  std::vector<Loop> loops_;
  Flow flow_;
  uint32_t names_ = 0;
};

}  // namespace rullama::webgpu

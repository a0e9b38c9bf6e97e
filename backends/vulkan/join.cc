#include "backends/vulkan/join.h"

#include <rullama/sdk/backend.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <spirv-tools/optimizer.hpp>
#include <spirv/unified1/spirv.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "backends/gpu/in_parallel.h"

namespace rullama::vulkan {
namespace {

constexpr uint32_t kVersion = 0x00010500;  // of SPIR-V, what Vulkan 1.2 takes
// Variables that tasks and their driver have in common.
constexpr std::array kCommonNames = {"task_push", "task_group", "task_groups", "task_kind"};
constexpr const char* kRunTask = "RunTask(";

[[noreturn]] void Fail(const std::string& what) {
  throw sdk::Error(RL_INTERNAL, "joining shaders: " + what);
}

// A shader that is being added.
struct Module {
  std::vector<Instruction> instructions;
  std::unordered_map<uint32_t, size_t> definitions;  // by id: its instruction
  std::unordered_map<uint32_t, std::string> names;
  std::unordered_map<uint32_t, uint32_t> built_ins;  // by variable
  std::set<uint32_t> decorated;
  std::set<uint32_t> dropped;                  // variables of which the result has one already
  std::unordered_map<uint32_t, uint32_t> ids;  // to those of the result
  uint32_t main = 0;

  explicit Module(const Spirv& code);
  [[nodiscard]] const Instruction& Definition(uint32_t id) const {
    return instructions[definitions.at(id)];
  }
};

Module::Module(const Spirv& code) : instructions(Parse(code)) {
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Spirv& words = instructions[i].words;
    if (instructions[i].result != 0) definitions[instructions[i].result] = i;
    switch (instructions[i].op) {
      case spv::OpEntryPoint:
        main = words[2];
        break;
      case spv::OpName:
        names[words[1]] = reinterpret_cast<const char*>(&words[2]);
        break;
      case spv::OpMemberDecorate:
        decorated.insert(words[1]);
        break;
      case spv::OpDecorate:
        decorated.insert(words[1]);
        if (words[2] == spv::DecorationBuiltIn) built_ins[words[1]] = words[3];
        break;
      default:
        break;
    }
  }
  if (main == 0) Fail("a shader has no main function");
}

// A variable in shared memory, which all tasks use in turn.
struct SharedSlot {
  uint32_t variable;
  uint32_t element;  // type
  uint32_t length;   // of an array; 0: a single value
};

class Joiner {
 public:
  // Appends a shader, the driver first. Returns the id of its main function.
  uint32_t Add(const Spirv& code);
  Joined Finish(std::span<const uint32_t> tasks, uint32_t threads);

 private:
  uint32_t NewId() { return bound_++; }
  uint32_t Mapped(Module& module, uint32_t id);
  Spirv Translated(Module& module, const Instruction& instruction);
  // The id of a type, constant or import; `words` has 0 in its place.
  uint32_t Known(Spirv words, size_t result_at, Spirv& section);
  void AddOnce(Spirv words, Spirv& section);
  void ShareVariables(Module& module);
  void AddDecoration(Module& module, const Instruction& instruction);
  void AddGlobal(Module& module, const Instruction& instruction);
  void AddSharedMemory(Module& module);
  void AddFunctions(Module& module, size_t from);
  uint32_t SizeOf(uint32_t type) const;
  uint32_t DeclareSharedMemory();
  void DefineRunTask(std::span<const uint32_t> tasks);

  uint32_t bound_ = 1;
  std::map<Spirv, uint32_t> known_;
  std::unordered_map<uint32_t, Spirv> types_;  // by id
  std::map<uint32_t, uint32_t> built_ins_;     // variables
  std::map<std::string, uint32_t> common_;     // variables
  std::vector<SharedSlot> slots_;
  size_t driver_slots_ = 0;  // the first ones, the driver's own, which tasks leave alone
  Spirv interface_;          // all variables outside functions
  Spirv capabilities_, extensions_, imports_, memory_model_, decorations_, globals_, functions_;
  uint32_t main_ = 0;
  Spirv run_task_;  // its OpFunction
};

uint32_t Joiner::Mapped(Module& module, uint32_t id) {
  const auto [place, fresh] = module.ids.try_emplace(id, 0);
  if (fresh) place->second = NewId();
  return place->second;
}

Spirv Joiner::Translated(Module& module, const Instruction& instruction) {
  Spirv words = instruction.words;
  for (const uint16_t at : instruction.ids) words[at] = Mapped(module, words[at]);
  return words;
}

uint32_t Joiner::Known(Spirv words, size_t result_at, Spirv& section) {
  const auto [place, fresh] = known_.try_emplace(words, 0);
  if (!fresh) return place->second;
  place->second = words[result_at] = NewId();
  types_[place->second] = words;
  Append(section, words);
  return place->second;
}

void Joiner::AddOnce(Spirv words, Spirv& section) {
  if (known_.try_emplace(words, 0).second) Append(section, words);
}

// Makes one variable of those that all shaders share: built-in variables and those of
// kCommonNames.
void Joiner::ShareVariables(Module& module) {
  const auto share = [&](uint32_t id, auto& table, const auto& key) {
    const auto [place, fresh] = table.try_emplace(key, 0);
    if (fresh) {
      place->second = Mapped(module, id);
    } else {
      module.ids[id] = place->second;
      module.dropped.insert(id);
    }
  };
  for (const auto& [id, built_in] : module.built_ins) {
    if (module.Definition(id).op == spv::OpVariable) share(id, built_ins_, built_in);
  }
  for (const auto& [id, name] : module.names) {
    if (std::ranges::find(kCommonNames, name) == kCommonNames.end()) continue;
    if (module.Definition(id).op == spv::OpVariable) share(id, common_, name);
  }
}

void Joiner::AddDecoration(Module& module, const Instruction& instruction) {
  const uint32_t target = instruction.words[1];
  const uint32_t kind = instruction.words[instruction.op == spv::OpMemberDecorate ? 3 : 2];
  if (module.dropped.contains(target)) return;
  // The constants that are the size of a workgroup: it is said once, as an execution mode.
  if (instruction.op == spv::OpDecorate && kind == spv::DecorationBuiltIn &&
      module.Definition(target).op != spv::OpVariable) {
    return;
  }
  Append(decorations_, Translated(module, instruction));
}

void Joiner::AddGlobal(Module& module, const Instruction& instruction) {
  if (instruction.op == spv::OpVariable) {
    if (module.dropped.contains(instruction.result)) return;
    if (instruction.words[3] == spv::StorageClassWorkgroup) return;  // AddSharedMemory
    Append(globals_, Translated(module, instruction));
    interface_.push_back(module.ids.at(instruction.result));
    return;
  }
  // Types that are spelled the same are the same, unless decorations tell them apart or something
  // has named them before.
  const bool plain = instruction.result != 0 && !module.decorated.contains(instruction.result) &&
                     !module.ids.contains(instruction.result);
  if (!plain) {
    const Spirv words = Translated(module, instruction);
    if (instruction.result != 0) types_[module.ids.at(instruction.result)] = words;
    Append(globals_, words);
    return;
  }
  const bool is_type = instruction.op >= spv::OpTypeVoid && instruction.op <= spv::OpTypeFunction;
  const size_t result_at = is_type ? 1 : 2;
  Spirv words = instruction.words;
  for (const uint16_t at : instruction.ids) {
    if (at != result_at) words[at] = Mapped(module, words[at]);
  }
  words[result_at] = 0;
  module.ids[instruction.result] = Known(std::move(words), result_at, globals_);
}

// The largest arrays of a module share their memory with the largest of others, of the same type.
void Joiner::AddSharedMemory(Module& module) {
  struct Variable {
    uint32_t id, element, length;
  };
  std::vector<Variable> variables;
  for (const Instruction& instruction : module.instructions) {
    if (instruction.op != spv::OpVariable || instruction.words[3] != spv::StorageClassWorkgroup) {
      continue;
    }
    const uint32_t type = module.Definition(instruction.words[1]).words[3];
    const Instruction& array = module.Definition(type);
    if (array.op == spv::OpTypeArray) {
      const Instruction& length = module.Definition(array.words[3]);
      if (length.op != spv::OpConstant) Fail("an array in shared memory has no constant length");
      variables.push_back({instruction.result, Mapped(module, array.words[2]), length.words[3]});
    } else {
      variables.push_back({instruction.result, Mapped(module, type), 0});
    }
  }
  std::ranges::stable_sort(variables, std::greater(), &Variable::length);
  std::set<size_t> taken;
  for (const Variable& variable : variables) {
    size_t i = driver_slots_;
    while (i < slots_.size() && (taken.contains(i) || slots_[i].element != variable.element ||
                                 (slots_[i].length == 0) != (variable.length == 0))) {
      ++i;
    }
    if (i == slots_.size()) slots_.push_back({NewId(), variable.element, variable.length});
    taken.insert(i);
    slots_[i].length = std::max(slots_[i].length, variable.length);
    module.ids[variable.id] = slots_[i].variable;
  }
  if (main_ == 0) driver_slots_ = slots_.size();
}

void Joiner::AddFunctions(Module& module, size_t from) {
  bool replaced = false;
  for (size_t i = from; i < module.instructions.size(); ++i) {
    const Instruction& instruction = module.instructions[i];
    if (instruction.op == spv::OpFunction && module.names[instruction.result] == kRunTask) {
      run_task_ = Translated(module, instruction);
      replaced = true;
    }
    if (!replaced) Append(functions_, Translated(module, instruction));
    if (instruction.op == spv::OpFunctionEnd) replaced = false;
  }
}

uint32_t Joiner::Add(const Spirv& code) {
  Module module(code);
  const bool is_driver = main_ == 0;
  ShareVariables(module);
  size_t i = 0;
  for (; i < module.instructions.size(); ++i) {
    const Instruction& instruction = module.instructions[i];
    if (instruction.op == spv::OpFunction) break;
    switch (instruction.op) {
      case spv::OpCapability:
        AddOnce(instruction.words, capabilities_);
        break;
      case spv::OpExtension:
        AddOnce(instruction.words, extensions_);
        break;
      case spv::OpExtInstImport: {
        Spirv words = instruction.words;
        words[1] = 0;
        module.ids[instruction.result] = Known(std::move(words), 1, imports_);
        break;
      }
      case spv::OpMemoryModel:
        if (is_driver) memory_model_ = instruction.words;
        if (instruction.words != memory_model_) Fail("a task has another memory model");
        break;
      case spv::OpDecorate:
      case spv::OpMemberDecorate:
        AddDecoration(module, instruction);
        break;
      case spv::OpEntryPoint:
      case spv::OpExecutionMode:
      case spv::OpSource:
      case spv::OpSourceExtension:
      case spv::OpString:
      case spv::OpName:
      case spv::OpMemberName:
      case spv::OpModuleProcessed:
        break;
      default:
        AddGlobal(module, instruction);
        break;
    }
  }
  AddSharedMemory(module);
  AddFunctions(module, i);
  const uint32_t main = Mapped(module, module.main);
  if (is_driver) main_ = main;
  return main;
}

uint32_t Joiner::SizeOf(uint32_t type) const {
  const Spirv& words = types_.at(type);
  switch (words[0] & spv::OpCodeMask) {
    case spv::OpTypeInt:
    case spv::OpTypeFloat:
      return words[2] / 8;
    case spv::OpTypeVector:
      return words[3] * SizeOf(words[2]);
    default:
      Fail("shared memory of a type that is not a number");
  }
}

uint32_t Joiner::DeclareSharedMemory() {
  uint32_t bytes = 0;
  const uint32_t uint_type = Known(Words(spv::OpTypeInt, {0, 32, 0}), 1, globals_);
  for (const SharedSlot& slot : slots_) {
    uint32_t type = slot.element;
    if (slot.length > 0) {
      const uint32_t length =
          Known(Words(spv::OpConstant, {uint_type, 0, slot.length}), 2, globals_);
      type = Known(Words(spv::OpTypeArray, {0, slot.element, length}), 1, globals_);
    }
    const uint32_t pointer =
        Known(Words(spv::OpTypePointer, {0, spv::StorageClassWorkgroup, type}), 1, globals_);
    Append(globals_, Words(spv::OpVariable, {pointer, slot.variable, spv::StorageClassWorkgroup}));
    interface_.push_back(slot.variable);
    bytes += std::max(slot.length, 1U) * SizeOf(slot.element);
  }
  return bytes;
}

// switch (task_kind) { case 0: call of the first task; ... }
void Joiner::DefineRunTask(std::span<const uint32_t> tasks) {
  if (run_task_.empty() || !common_.contains("task_kind")) Fail("the driver runs no tasks");
  const uint32_t uint_type = Known(Words(spv::OpTypeInt, {0, 32, 0}), 1, globals_);
  const uint32_t kind = NewId(), end = NewId();
  Append(functions_, run_task_);
  Append(functions_, Words(spv::OpLabel, {NewId()}));
  Append(functions_, Words(spv::OpLoad, {uint_type, kind, common_.at("task_kind")}));
  Append(functions_, Words(spv::OpSelectionMerge, {end, spv::SelectionControlMaskNone}));
  Spirv choice = {0, kind, end}, calls;
  for (uint32_t i = 0; i < tasks.size(); ++i) {
    const uint32_t label = NewId();
    choice.push_back(i);
    choice.push_back(label);
    Append(calls, Words(spv::OpLabel, {label}));
    Append(calls, Words(spv::OpFunctionCall, {run_task_[1], NewId(), tasks[i]}));
    Append(calls, Words(spv::OpBranch, {end}));
  }
  SetOp(spv::OpSwitch, choice);
  Append(functions_, choice);
  Append(functions_, calls);
  Append(functions_, Words(spv::OpLabel, {end}));
  Append(functions_, Words(spv::OpReturn, {}));
  Append(functions_, Words(spv::OpFunctionEnd, {}));
}

Joined Joiner::Finish(std::span<const uint32_t> tasks, uint32_t threads) {
  Joined joined;
  joined.shared_bytes = DeclareSharedMemory();
  DefineRunTask(tasks);
  Spirv entry = {0, spv::ExecutionModelGLCompute, main_, 0x6E69616D, 0};  // "main"
  Append(entry, interface_);
  SetOp(spv::OpEntryPoint, entry);
  Spirv modes = Words(spv::OpExecutionMode, {main_, spv::ExecutionModeLocalSize, threads, 1, 1});
  joined.code = {spv::MagicNumber, kVersion, 0, bound_, 0};
  for (const Spirv* section : {&capabilities_, &extensions_, &imports_, &memory_model_, &entry,
                               &modes, &decorations_, &globals_, &functions_}) {
    Append(joined.code, *section);
  }
  return joined;
}

// ---- passes of SPIRV-Tools ----------------------------------------------------------------------

spvtools::Optimizer::PassToken UnrollLoops() { return spvtools::CreateLoopUnrollPass(true); }
spvtools::Optimizer::PassToken SplitVariables() { return spvtools::CreateScalarReplacementPass(0); }
spvtools::Optimizer::PassToken DropUnused() { return spvtools::CreateAggressiveDCEPass(); }

using Passes = std::initializer_list<spvtools::Optimizer::PassToken (*)()>;

Spirv Run(spvtools::Optimizer& optimizer, std::span<const uint32_t> code, Passes passes) {
  std::string messages;
  optimizer.SetMessageConsumer([&messages](spv_message_level_t, const char*, const spv_position_t&,
                                           const char* message) { messages += message; });
  for (const auto make : passes) optimizer.RegisterPass(make());
  spvtools::OptimizerOptions options;
  options.set_run_validator(false);
  Spirv result;
  if (!optimizer.Run(code.data(), code.size(), &result, options)) Fail("not SPIR-V: " + messages);
  return result;
}

// A task as one function without the loops that it asks to unroll. Arrays of its own then have
// constant indices, which lets drivers keep them in registers: among many functions in one module
// they did not.
Spirv Flat(const Spirv& code) {
  spvtools::Optimizer optimizer(kSpirvTarget);
  return Run(optimizer, code,
             {spvtools::CreateMergeReturnPass, spvtools::CreateInlineExhaustivePass,
              spvtools::CreateEliminateDeadFunctionsPass, spvtools::CreateSSARewritePass,
              spvtools::CreateCCPPass, spvtools::CreateDeadBranchElimPass, UnrollLoops,
              spvtools::CreateCCPPass, spvtools::CreateDeadBranchElimPass,
              spvtools::CreateSimplificationPass, spvtools::CreateEliminateDeadConstantPass});
}

// Variables of all functions that one alone uses become its own, and values where they can. Only of
// the whole is it known which ones a task shares with the driver.
Spirv WithValues(const Spirv& code) {
  spvtools::Optimizer optimizer(kSpirvTarget);
  return Run(optimizer, code,
             {spvtools::CreatePrivateToLocalPass, SplitVariables, spvtools::CreateSSARewritePass,
              spvtools::CreateCCPPass, spvtools::CreateDeadBranchElimPass, UnrollLoops,
              spvtools::CreateCCPPass, spvtools::CreateSimplificationPass, SplitVariables,
              spvtools::CreateSSARewritePass, spvtools::CreateSimplificationPass, DropUnused});
}

// Sets the size of the workgroup. Constant 0 is that size, but where no code reads it, it goes with
// the other unused constants.
void SetLocalSize(uint32_t threads, Spirv& code) {
  for (size_t at = kHeaderWords; at < code.size(); at += code[at] >> spv::WordCountShift) {
    const bool is_mode = (code[at] & spv::OpCodeMask) == spv::OpExecutionMode;
    if (is_mode && code[at + 2] == spv::ExecutionModeLocalSize) code[at + 3] = threads;
  }
}

}  // namespace

Spirv WithConstants(std::span<const uint32_t> code, std::span<const uint32_t> constants) {
  std::unordered_map<uint32_t, std::vector<uint32_t>> values;
  for (uint32_t i = 0; i < constants.size(); ++i) values[i] = {constants[i]};
  spvtools::Optimizer optimizer(kSpirvTarget);
  optimizer.RegisterPass(spvtools::CreateSetSpecConstantDefaultValuePass(values));
  Spirv result =
      Run(optimizer, code,
          {spvtools::CreateFreezeSpecConstantValuePass,
           spvtools::CreateFoldSpecConstantOpAndCompositePass, spvtools::CreateDeadBranchElimPass,
           spvtools::CreateEliminateDeadFunctionsPass, spvtools::CreateEliminateDeadConstantPass});
  SetLocalSize(constants.front(), result);
  return result;
}

void CheckStop(const std::atomic<bool>& stop) {
  if (stop) throw sdk::Error(RL_CANCELLED, "shaders that are being joined were given up");
}

Joined Join(const Spirv& driver, std::span<const Spirv> tasks, uint32_t threads,
            const std::atomic<bool>& stop) {
  std::vector<Spirv> flat(tasks.size());
  gpu::InParallel(tasks.size(), [&](size_t i) {
    CheckStop(stop);
    flat[i] = Flat(tasks[i]);
  });
  Joiner joiner;
  joiner.Add(driver);
  std::vector<uint32_t> mains;
  mains.reserve(flat.size());
  for (const Spirv& task : flat) mains.push_back(joiner.Add(task));
  Joined joined = joiner.Finish(mains, threads);
  CheckStop(stop);
  joined.code = WithValues(joined.code);
  return joined;
}

}  // namespace rullama::vulkan

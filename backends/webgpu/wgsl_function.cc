#include "backends/webgpu/wgsl_function.h"

#include <rullama/sdk/backend.h>

#include <functional>
#include <utility>

namespace rullama::webgpu {
namespace {

// The target of a branch or switch whose condition is known.
uint32_t TargetFor(const Instruction& last, uint32_t word) {
  if (last.op == spv::OpBranchConditional) return word != 0 ? last[1] : last[2];
  for (size_t i = 2; i + 1 < last.operands.size(); i += 2) {
    if (last[i] == word) return last[i + 1];
  }
  return last[1];
}

}  // namespace

WgslFunction::WgslFunction(const Module& module, const WgslSource& source,
                           const std::set<uint32_t>& atomics, const Function& function,
                           std::set<uint32_t> shared, TypeNames& types, WgslNeeds& needs)
    : module_(module),
      source_(source),
      atomics_(atomics),
      function_(function),
      shared_(std::move(shared)),
      types_(types),
      needs_(needs) {}

std::string WgslFunction::Text() {
  std::string head = "fn rl_f" + std::to_string(function_.id) + "(";
  for (const Instruction& parameter : function_.parameters) {
    const std::string name = "v" + std::to_string(parameter.result);
    head += name + ": " + types_.NameOf(parameter.type) + ", ";
    values_[parameter.result] = {name};
    const Type& type = module_.TypeOf(parameter.type);
    if (type.op == spv::OpTypePointer && type.storage == spv::StorageClassFunction) {
      places_[parameter.result] = {"(*" + name + ")", type.of};
    }
  }
  head += ')';
  const bool returns = module_.TypeOf(function_.type).op != spv::OpTypeVoid;
  if (returns) head += " -> " + types_.NameOf(function_.type);
  FindHoisted();
  // A function ends with a value, also where control does not get.
  if (Walk(function_.first, 0) || returns) {
    if (returns) code_ += "return " + types_.NameOf(function_.type) + "();\n";
  }
  return head + " {\n" + declarations_ + code_ + "}\n";
}

// `let` belongs to a block of WGSL, while a value may be used wherever its block leads.
void WgslFunction::FindHoisted() {
  std::map<uint32_t, std::pair<uint32_t, const Instruction*>> made;  // the block of each value
  for (const auto& [label, block] : function_.blocks) {
    for (const Instruction& instruction : block.body) {
      if (instruction.result != 0) made[instruction.result] = {label, &instruction};
    }
  }
  const std::function<void(uint32_t, uint32_t)> use = [&](uint32_t id, uint32_t label) {
    const auto found = made.find(id);
    if (found == made.end()) return;
    const auto& [home, instruction] = found->second;
    if (home != label) hoisted_.insert(id);
    // The text of a place is repeated where it is used, and that of a bitcast may be.
    if (instruction->op == spv::OpAccessChain || instruction->op == spv::OpBitcast ||
        instruction->op == spv::OpCopyLogical) {
      for (const uint32_t operand : instruction->operands) use(operand, label);
    }
  };
  for (const auto& [label, block] : function_.blocks) {
    for (const Instruction& instruction : block.body) {
      if (instruction.op == spv::OpPhi) {
        hoisted_.insert(instruction.result);
        for (size_t i = 0; i + 1 < instruction.operands.size(); i += 2) {
          use(instruction[i], instruction[i + 1]);
        }
        continue;
      }
      for (const uint32_t operand : instruction.operands) use(operand, label);
    }
    for (const uint32_t operand : block.end.operands) use(operand, label);
  }
}

bool WgslFunction::Walk(uint32_t label, uint32_t end, uint32_t entered) {
  while (label != end) {
    const Block& block = function_.blocks.at(label);
    if (block.merge && block.merge->op == spv::OpLoopMerge && label != entered) {
      WriteLoop(label, block);
      label = (*block.merge)[0];
      continue;
    }
    Write(block);
    const std::optional<uint32_t> next = Leave(label, block, end);
    if (!next) return false;
    label = *next;
  }
  return true;
}

void WgslFunction::WriteLoop(uint32_t label, const Block& header) {
  // Only the edge into the loop was seen so far, and its value may be a constant.
  if (!header.body.empty() && header.body.front().op == spv::OpPhi) {
    throw sdk::Error(RL_INTERNAL, "a shader has a phi at the head of a loop");
  }
  const Loop loop{(*header.merge)[0], (*header.merge)[1]};
  loops_.push_back(loop);
  code_ += "loop {\n";
  Walk(label, loop.next, label);
  code_ += "continuing {\n";
  Walk(loop.next, label);
  code_ += "}\n}\n";
  loops_.pop_back();
}

std::optional<uint32_t> WgslFunction::Leave(uint32_t from, const Block& block, uint32_t end) {
  const Instruction& last = block.end;
  switch (last.op) {
    case spv::OpBranch:
      flow_[from] = {last[0]};
      return Go(from, last[0], end);
    case spv::OpReturn:
      flow_[from] = {};
      code_ += "return;\n";
      return std::nullopt;
    case spv::OpReturnValue:
      flow_[from] = {};
      code_ += "return " + TextOf(last[0]) + ";\n";
      return std::nullopt;
    case spv::OpUnreachable:
      flow_[from] = {};
      return std::nullopt;
    case spv::OpSwitch:
    case spv::OpBranchConditional: {
      const bool merges = block.merge && block.merge->op == spv::OpSelectionMerge;
      return merges ? Choose(from, block, end) : ChooseExit(from, block, end);
    }
    default:
      throw sdk::Error(RL_INTERNAL, "a block of a shader ends with " + std::to_string(last.op));
  }
}

std::optional<uint32_t> WgslFunction::Choose(uint32_t from, const Block& block, uint32_t end) {
  const uint32_t merge = (*block.merge)[0];
  const Value condition = ConditionOf(from, block);
  const auto branch = [&](uint32_t target) {
    const std::optional<uint32_t> next = Go(from, target, merge);
    return next && Walk(*next, merge);
  };
  bool gets_there = false;
  if (condition.word) {
    gets_there = branch(TargetFor(block.end, *condition.word));
  } else if (block.end.op == spv::OpSwitch) {
    throw sdk::Error(RL_INTERNAL, "a shader has a switch whose value is not a constant");
  } else {
    code_ += "if (" + condition.text + ") {\n";
    gets_there = branch(block.end[1]);
    code_ += "} else {\n";
    gets_there = branch(block.end[2]) || gets_there;
    code_ += "}\n";
  }
  if (!gets_there) return std::nullopt;
  return merge == end ? end : merge;
}

std::optional<uint32_t> WgslFunction::ChooseExit(uint32_t from, const Block& block, uint32_t end) {
  const Instruction& last = block.end;
  const Value condition = ConditionOf(from, block);
  if (condition.word) return Go(from, TargetFor(last, *condition.word), end);
  // The end of `do { ... } while (condition)`.
  if (!loops_.empty() && last[1] == end && last[2] == loops_.back().merge) {
    code_ += "break if !(" + condition.text + ");\n";
    return end;
  }
  const bool second_leaves = LeavesLoop(last[2]);
  if (!second_leaves && !LeavesLoop(last[1])) {
    throw sdk::Error(RL_INTERNAL, "a shader has a branch that is not structured");
  }
  code_ += (second_leaves ? "if (!(" : "if ((") + condition.text + ")) {\n";
  Go(from, second_leaves ? last[2] : last[1], 0);
  code_ += "}\n";
  return Go(from, second_leaves ? last[1] : last[2], end);
}

WgslFunction::Value WgslFunction::ConditionOf(uint32_t from, const Block& block) {
  Value condition = ValueOf(block.end[0]);
  if (condition.word) {
    flow_[from] = {TargetFor(block.end, *condition.word)};
    return condition;
  }
  if (block.end.op == spv::OpBranchConditional) flow_[from] = {block.end[1], block.end[2]};
  if (shared_.count(from) > 0) {
    needs_.shared_branches = true;
    condition.text = "rl_shared(" + condition.text + ")";
  }
  return condition;
}

bool WgslFunction::LeavesLoop(uint32_t target) const {
  return !loops_.empty() && (target == loops_.back().merge || target == loops_.back().next);
}

std::optional<uint32_t> WgslFunction::Go(uint32_t from, uint32_t target, uint32_t end) {
  WritePhis(from, target);
  if (target == end || !LeavesLoop(target)) return target;
  code_ += target == loops_.back().merge ? "break;\n" : "continue;\n";
  return std::nullopt;
}

void WgslFunction::WritePhis(uint32_t from, uint32_t target) {
  for (const Instruction& phi : function_.blocks.at(target).body) {
    if (phi.op != spv::OpPhi) return;
    for (size_t i = 0; i + 1 < phi.operands.size(); i += 2) {
      if (phi[i + 1] != from) continue;
      Declare(phi.result);
      incoming_[phi.result].push_back(ValueOf(phi[i]));
      code_ += "v" + std::to_string(phi.result) + " = " + TextOf(phi[i]) + ";\n";
    }
  }
}

// Where control gets there from one block alone, the value is that of that block.
void WgslFunction::TakePhi(const Instruction& phi) {
  Value value{"v" + std::to_string(phi.result)};
  const auto& incoming = incoming_[phi.result];
  if (incoming.size() == 1 && incoming.front().word) value = incoming.front();
  values_[phi.result] = value;
}

void WgslFunction::Write(const Block& block) {
  for (const Instruction& instruction : block.body) Write(instruction);
}

void WgslFunction::Write(const Instruction& instruction) {
  if (instruction.op == spv::OpPhi) return TakePhi(instruction);
  if (Known(instruction) || Effect(instruction)) return;
  for (const auto& spell : {&WgslFunction::Arithmetic, &WgslFunction::Comparison,
                            &WgslFunction::Conversion, &WgslFunction::Composite}) {
    if (const auto text = (this->*spell)(instruction)) return Define(instruction, *text);
  }
  throw sdk::Error(RL_INTERNAL,
                   "WGSL has no spelling for operation " + std::to_string(instruction.op));
}

}  // namespace rullama::webgpu

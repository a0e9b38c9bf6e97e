#include "backends/webgpu/wgsl_flow.h"

#include <algorithm>

namespace rullama::webgpu {
namespace {

bool HasBarrier(const Block& block, const std::set<uint32_t>& with_barriers) {
  return std::any_of(block.body.begin(), block.body.end(), [&](const Instruction& instruction) {
    return instruction.op == spv::OpControlBarrier || instruction.op == spv::OpMemoryBarrier ||
           (instruction.op == spv::OpFunctionCall && with_barriers.count(instruction[0]) > 0);
  });
}

// Which branches decide whether a block runs.
class Deciders {
 public:
  explicit Deciders(const Flow& flow) : flow_(flow) {
    for (const auto& [from, targets] : flow) {
      for (const uint32_t target : targets) before_[target].push_back(from);
    }
  }

  // The branches, and those that decide whether these run.
  const std::set<uint32_t>& Of(uint32_t block) {
    const auto [entry, fresh] = all_.try_emplace(block);
    if (!fresh) return entry->second;
    std::vector<uint32_t> open{block};
    std::set<uint32_t>& found = entry->second;
    while (!open.empty()) {
      const uint32_t next = open.back();
      open.pop_back();
      for (const uint32_t branch : NearestOf(next)) {
        if (found.insert(branch).second) open.push_back(branch);
      }
    }
    return found;
  }

 private:
  // The branches of which one target leads to the block for sure, and another may avoid it.
  const std::set<uint32_t>& NearestOf(uint32_t block) {
    const auto [entry, fresh] = nearest_.try_emplace(block);
    if (!fresh) return entry->second;
    const std::set<uint32_t> avoiding = Avoiding(block);
    for (const auto& [from, targets] : flow_) {
      size_t avoids = 0;
      for (const uint32_t target : targets) avoids += avoiding.count(target);
      if (avoids > 0 && avoids < targets.size()) entry->second.insert(from);
    }
    return entry->second;
  }

  // The blocks from which control may leave the function without the block.
  [[nodiscard]] std::set<uint32_t> Avoiding(uint32_t block) const {
    std::set<uint32_t> found;
    std::vector<uint32_t> open;
    for (const auto& [from, targets] : flow_) {
      if (targets.empty() && from != block && found.insert(from).second) open.push_back(from);
    }
    while (!open.empty()) {
      const auto before = before_.find(open.back());
      open.pop_back();
      if (before == before_.end()) continue;
      for (const uint32_t from : before->second) {
        if (from != block && found.insert(from).second) open.push_back(from);
      }
    }
    return found;
  }

  const Flow& flow_;
  std::map<uint32_t, std::vector<uint32_t>> before_;
  std::map<uint32_t, std::set<uint32_t>> nearest_, all_;
};

// Which values invocations of a workgroup might not have in common.
class Varying {
 public:
  // `shared`: branches that all invocations take alike.
  Varying(const Module& module, const Function& function, const Flow& flow, Deciders& deciders,
          const std::set<uint32_t>& shared)
      : module_(module), function_(function), flow_(flow), deciders_(deciders), shared_(shared) {
    for (const Instruction& parameter : function.parameters) values_.insert(parameter.result);
    size_t count = 0;
    do {
      count = values_.size();
      for (const auto& [label, targets] : flow) Visit(label);
    } while (values_.size() > count);
  }

  [[nodiscard]] bool Has(uint32_t value) const { return values_.count(value) > 0; }
  [[nodiscard]] bool BranchOf(uint32_t label) const {
    const Instruction& end = function_.blocks.at(label).end;
    return !end.operands.empty() && flow_.at(label).size() > 1 && Has(end[0]);
  }

 private:
  [[nodiscard]] bool Runs(uint32_t label) const {
    const std::set<uint32_t>& branches = deciders_.Of(label);
    return std::any_of(branches.begin(), branches.end(), [&](uint32_t branch) {
      return shared_.count(branch) == 0 && BranchOf(branch);
    });
  }

  void Visit(uint32_t label) {
    const bool runs = Runs(label);
    for (const Instruction& instruction : function_.blocks.at(label).body) {
      if (instruction.op == spv::OpAccessChain) bases_[instruction.result] = instruction[0];
      const bool varies = runs || Varies(instruction);
      if (varies && instruction.result != 0 && instruction.op != spv::OpVariable) {
        values_.insert(instruction.result);
      }
      if (varies && instruction.op == spv::OpStore) values_.insert(BaseOf(instruction[0]));
      if (instruction.op == spv::OpFunctionCall) {
        // The function may store in what it gets by pointer.
        for (const uint32_t argument : instruction.operands.subspan(1)) {
          values_.insert(BaseOf(argument));
        }
      }
    }
  }

  [[nodiscard]] bool Varies(const Instruction& instruction) const {
    const auto any = [&](size_t first) {
      const auto operands = instruction.operands.subspan(first);
      return std::any_of(operands.begin(), operands.end(), [&](uint32_t id) { return Has(id); });
    };
    switch (instruction.op) {
      case spv::OpVariable:
        return false;
      case spv::OpFunctionCall:
        return true;
      case spv::OpLoad: {
        const spv::StorageClass storage = module_.TypeOf(module_.TypeIdOf(instruction[0])).storage;
        const bool common =
            storage == spv::StorageClassFunction || storage == spv::StorageClassPushConstant;
        return !common || Has(instruction[0]) || Has(BaseOf(instruction[0]));
      }
      case spv::OpPhi:
        for (size_t i = 0; i + 1 < instruction.operands.size(); i += 2) {
          const uint32_t from = instruction[i + 1];
          if (flow_.count(from) == 0) continue;
          if (Has(instruction[i]) || Runs(from)) return true;
          if (shared_.count(from) == 0 && BranchOf(from)) return true;
        }
        return false;
      default:
        if (instruction.op >= spv::OpAtomicLoad && instruction.op <= spv::OpAtomicXor) return true;
        return any(0);
    }
  }

  [[nodiscard]] uint32_t BaseOf(uint32_t pointer) const {
    const auto found = bases_.find(pointer);
    return found == bases_.end() ? pointer : BaseOf(found->second);
  }

  const Module& module_;
  const Function& function_;
  const Flow& flow_;
  Deciders& deciders_;
  const std::set<uint32_t>& shared_;
  std::map<uint32_t, uint32_t> bases_;
  std::set<uint32_t> values_;
};

}  // namespace

std::set<uint32_t> FunctionsWithBarriers(const Module& module,
                                         const std::map<uint32_t, Flow>& flows) {
  std::set<uint32_t> found;
  size_t count = 0;
  do {
    count = found.size();
    for (const auto& [id, flow] : flows) {
      for (const auto& [label, targets] : flow) {
        if (HasBarrier(module.FunctionOf(id).blocks.at(label), found)) found.insert(id);
      }
    }
  } while (found.size() > count);
  return found;
}

std::set<uint32_t> SharedBranches(const Module& module, const Function& function, const Flow& flow,
                                  const std::set<uint32_t>& with_barriers) {
  Deciders deciders(flow);
  std::set<uint32_t> shared;
  for (const auto& [label, targets] : flow) {
    if (!HasBarrier(function.blocks.at(label), with_barriers)) continue;
    const std::set<uint32_t>& branches = deciders.Of(label);
    shared.insert(branches.begin(), branches.end());
  }
  const Varying varying(module, function, flow, deciders, shared);
  std::set<uint32_t> unknown;
  for (const uint32_t label : shared) {
    if (varying.BranchOf(label)) unknown.insert(label);
  }
  return unknown;
}

}  // namespace rullama::webgpu

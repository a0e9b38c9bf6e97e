#include "backends/webgpu/wgsl.h"

#include <rullama/sdk/backend.h>

#include <set>

#include "backends/webgpu/spirv.h"
#include "backends/webgpu/wgsl_function.h"
#include "backends/webgpu/wgsl_types.h"

namespace rullama::webgpu {
namespace {

bool IsAtomic(spv::Op op) { return op >= spv::OpAtomicLoad && op <= spv::OpAtomicXor; }

// The variables outside of functions with atomic elements.
std::set<uint32_t> AtomicsOf(const Module& module) {
  std::set<uint32_t> atomics;
  for (const auto& [id, function] : module.functions()) {
    std::map<uint32_t, uint32_t> bases;
    for (const auto& [label, block] : function.blocks) {
      for (const Instruction& instruction : block.body) {
        if (instruction.op == spv::OpAccessChain) bases[instruction.result] = instruction[0];
        if (!IsAtomic(instruction.op)) continue;
        const auto base = bases.find(instruction[0]);
        atomics.insert(base == bases.end() ? instruction[0] : base->second);
      }
    }
  }
  return atomics;
}

// The functions of memory `i`.
std::string FunctionsOf(const std::string& i, bool halves) {
  const std::string b = "rl_memory" + i;
  std::string text = "fn rl_load" + i + "(i: u32) -> u32 { return ";
  text += (halves ? "atomicLoad(&" + b + "[i])" : b + "[i]") + "; }\n";
  text += "fn rl_store" + i + "(i: u32, v: u32) { ";
  text += (halves ? "atomicStore(&" + b + "[i], v)" : b + "[i] = v") + "; }\n";
  if (!halves) return text;
  // Other invocations write the other half.
  return text + "fn rl_store_half" + i + "(a: u32, v: u32) { let s = (a & 2u) * 8u; atomicAnd(&" +
         b + "[a >> 2u], ~(65535u << s)); atomicOr(&" + b + "[a >> 2u], v << s); }\n";
}

// A function that chooses the memory: `head` up to its body, `call` what a case does with `i`.
std::string Choice(const std::string& head, const std::string& name, const std::string& arguments,
                   bool returns, uint32_t count) {
  std::string text = head + " {\nswitch b {\n";
  for (uint32_t i = 1; i <= count; ++i) {
    const std::string call = name + std::to_string(i) + arguments + ";";
    text += "case " + std::to_string(i) + "u: { " + (returns ? "return " : "") + call + " }\n";
  }
  if (!returns) return text + "default: {}\n}\n}\n";
  return text + "default: { return rl_arguments[i]; }\n}\n}\n";
}

std::string MemoryText(const WgslNeeds& needs, uint32_t count) {
  std::string text = "@group(0) @binding(0) var<storage, read> rl_arguments: array<u32>;\n";
  for (uint32_t binding = 1; binding <= count; ++binding) {
    const std::string i = std::to_string(binding);
    text += "@group(0) @binding(" + i + ") var<storage, read_write> rl_memory" + i + ": array<" +
            (needs.halves ? "atomic<u32>" : "u32") + ">;\n" + FunctionsOf(i, needs.halves);
  }
  if (!needs.unknown_bindings) return text;
  text += Choice("fn rl_load(b: u32, i: u32) -> u32", "rl_load", "(i)", true, count);
  text += Choice("fn rl_store(b: u32, i: u32, v: u32)", "rl_store", "(i, v)", false, count);
  if (!needs.halves) return text;
  return text + Choice("fn rl_store_half(b: u32, i: u32, v: u32)", "rl_store_half", "(i, v)", false,
                       count);
}

std::string HighProduct(bool needed) {
  if (!needed) return {};
  return "fn rl_mul_hi(a: u32, b: u32) -> u32 {\n"
         "let al = a & 65535u; let ah = a >> 16u; let bl = b & 65535u; let bh = b >> 16u;\n"
         "let m = ah * bl + ((al * bl) >> 16u); let n = al * bh + (m & 65535u);\n"
         "return ah * bh + (m >> 16u) + (n >> 16u); }\n";
}

struct BuiltInName {
  spv::BuiltIn builtin;
  const char *name, *type;
};
constexpr BuiltInName kBuiltIns[] = {
    {spv::BuiltInWorkgroupId, "workgroup_id", "vec3<u32>"},
    {spv::BuiltInNumWorkgroups, "num_workgroups", "vec3<u32>"},
    {spv::BuiltInLocalInvocationId, "local_invocation_id", "vec3<u32>"},
    {spv::BuiltInLocalInvocationIndex, "local_invocation_index", "u32"},
};

const BuiltInName& NameOf(spv::BuiltIn builtin) {
  for (const BuiltInName& name : kBuiltIns) {
    if (name.builtin == builtin) return name;
  }
  throw sdk::Error(RL_INTERNAL, "WGSL has no value for built-in " + std::to_string(builtin));
}

// An array of atomics, or one.
std::string AtomicType(const Module& module, TypeNames& types, uint32_t id) {
  const Type& type = module.TypeOf(id);
  if (type.op != spv::OpTypeArray) return "atomic<" + types.NameOf(id) + ">";
  return "array<atomic<" + types.NameOf(type.of) + ">, " + std::to_string(type.count) + ">";
}

// The variables outside of functions, and the entry point, which sets those that are inputs.
std::string VariablesText(const Module& module, TypeNames& types, const WgslNeeds& needs,
                          const std::set<uint32_t>& atomics) {
  std::string text = "var<private> rl_zero: u32 = 0u;\n", inputs, sets;
  for (const uint32_t id : needs.variables) {
    const Type& pointer = module.TypeOf(module.TypeIdOf(id));
    const std::string name = "g" + std::to_string(id);
    if (pointer.storage == spv::StorageClassPushConstant) continue;
    if (const auto builtin = module.BuiltInOf(id)) {
      const BuiltInName& input = NameOf(*builtin);
      inputs += std::string("@builtin(") + input.name + ") i" + name + ": " + input.type + ", ";
      sets += name + " = i" + name + "; ";
    }
    const bool shared = pointer.storage == spv::StorageClassWorkgroup;
    const bool atomic = atomics.count(id) > 0;
    text += std::string("var<") + (shared ? "workgroup" : "private") + "> " + name + ": " +
            (atomic ? AtomicType(module, types, pointer.of) : types.NameOf(pointer.of)) + ";\n";
  }
  return text + "@compute @workgroup_size(" + std::to_string(module.threads()) +
         ", 1, 1)\nfn main(" + inputs + ") { " + sets + "rl_f" + std::to_string(module.entry()) +
         "(); }\n";
}

}  // namespace

std::string WgslOf(const WgslSource& source) {
  const Module module(source.code, source.constants);
  const std::set<uint32_t> atomics = AtomicsOf(module);
  TypeNames types(module);
  WgslNeeds needs;
  needs.functions.insert(module.entry());
  std::set<uint32_t> written;
  std::string functions;
  while (written.size() < needs.functions.size()) {
    const std::set<uint32_t> all = needs.functions;
    for (const uint32_t id : all) {
      if (!written.insert(id).second) continue;
      functions +=
          WgslFunction(module, source, atomics, module.FunctionOf(id), types, needs).Text();
    }
  }
  const std::string variables = VariablesText(module, types, needs, atomics);
  return types.Declarations() + MemoryText(needs, source.binding_count) +
         HighProduct(needs.high_products) + variables + functions;
}

}  // namespace rullama::webgpu

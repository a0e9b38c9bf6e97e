#include "backends/webgpu/wgsl.h"

#include <rullama/sdk/backend.h>

#include <set>

#include "backends/webgpu/spirv.h"
#include "backends/webgpu/wgsl_flow.h"
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

// The functions of memory `i`, an array of four words each. A component of an element is stored
// alone: on Vulkan neighbours may be stored at the same time.
std::string FunctionsOf(const std::string& i) {
  const std::string b = "rl_memory" + i;
  return "fn rl_load" + i + "(i: u32) -> u32 { return " + b + "[i >> 2u][i & 3u]; }\n" +
         "fn rl_load_four" + i + "(i: u32) -> vec4<u32> { return " + b + "[i >> 2u]; }\n" +
         "fn rl_store" + i + "(i: u32, v: u32) { " + b + "[i >> 2u][i & 3u] = v; }\n" +
         "fn rl_store_four" + i + "(i: u32, v: vec4<u32>) { " + b + "[i >> 2u] = v; }\n";
}

// The same where elements of 16 bits are stored: other invocations store the other half of a word.
std::string AtomicFunctionsOf(const std::string& i) {
  const std::string b = "&rl_memory" + i;
  std::string fours, stores;
  for (const char* at : {"", " + 1u", " + 2u", " + 3u"}) {
    fours += "atomicLoad(" + b + "[i" + at + "]), ";
    stores += "atomicStore(" + b + "[i" + at + "], v[0u" + at + "]); ";
  }
  return "fn rl_load" + i + "(i: u32) -> u32 { return atomicLoad(" + b + "[i]); }\n" +
         "fn rl_load_four" + i + "(i: u32) -> vec4<u32> { return vec4<u32>(" + fours + "); }\n" +
         "fn rl_store" + i + "(i: u32, v: u32) { atomicStore(" + b + "[i], v); }\n" +
         "fn rl_store_four" + i + "(i: u32, v: vec4<u32>) { " + stores + "}\n" +
         "fn rl_store_half" + i + "(i: u32, v: u32) { let s = (i & 2u) * 8u; atomicAnd(" + b +
         "[i >> 2u], ~(65535u << s)); atomicOr(" + b + "[i >> 2u], v << s); }\n";
}

// A call of the function of memory `i`.
std::string CaseOf(const std::string& i, const std::string& call, const std::string& value) {
  return "case " + i + "u: { " + call + i + "(i" + value + "); }\n";
}

// A function that chooses the memory. `value`: the parameter that is stored; empty where one is
// loaded, which may be one of the arguments.
std::string Choice(const std::string& name, const std::string& type, const std::string& value,
                   const std::string& otherwise, uint32_t count) {
  const bool loads = value.empty();
  std::string text = "fn " + name + "(b: u32, i: u32" + (loads ? ") -> " : ", v: ") + type +
                     (loads ? "" : ")") + " {\nswitch b {\n";
  const std::string call = (loads ? "return " : "") + name;
  for (uint32_t i = 1; i <= count; ++i) text += CaseOf(std::to_string(i), call, value);
  return text + "default: {" + otherwise + "}\n}\n}\n";
}

std::string ChoicesOf(const WgslNeeds& needs, uint32_t count) {
  std::string text =
      Choice("rl_load", "u32", "", " return rl_arguments[i]; ", count) +
      Choice("rl_load_four", "vec4<u32>", "",
             " return vec4<u32>(rl_arguments[i], rl_arguments[i + 1u], rl_arguments[i + 2u], "
             "rl_arguments[i + 3u]); ",
             count) +
      Choice("rl_store", "u32", ", v", "", count) +
      Choice("rl_store_four", "vec4<u32>", ", v", "", count);
  if (needs.halves) text += Choice("rl_store_half", "u32", ", v", "", count);
  return text;
}

std::string BindingOf(const std::string& i, bool halves) {
  return "@group(0) @binding(" + i + ") var<storage, read_write> rl_memory" + i + ": array<" +
         (halves ? "atomic<u32>" : "vec4<u32>") + ">;\n" +
         (halves ? AtomicFunctionsOf(i) : FunctionsOf(i));
}

std::string MemoryText(const WgslNeeds& needs, uint32_t count) {
  std::string text = "@group(0) @binding(0) var<storage, read> rl_arguments: array<u32>;\n";
  for (uint32_t i = 1; i <= count; ++i) text += BindingOf(std::to_string(i), needs.halves);
  return needs.unknown_bindings ? text + ChoicesOf(needs, count) : text;
}

std::string HighProduct(bool needed) {
  if (!needed) return {};
  return "fn rl_mul_hi(a: u32, b: u32) -> u32 {\n"
         "let al = a & 65535u; let ah = a >> 16u; let bl = b & 65535u; let bh = b >> 16u;\n"
         "let m = ah * bl + ((al * bl) >> 16u); let n = al * bh + (m & 65535u);\n"
         "return ah * bh + (m >> 16u) + (n >> 16u); }\n";
}

// A condition that invocations have in common, which WGSL takes from one of them. The first one
// alone writes it.
std::string SharedBranch(bool needed) {
  if (!needed) return {};
  return "var<workgroup> rl_branch: u32;\nvar<private> rl_invocation: u32;\n"
         "fn rl_shared(taken: bool) -> bool {\n"
         "if (rl_invocation == 0u) { rl_branch = select(0u, 1u, taken); }\n"
         "return workgroupUniformLoad(&rl_branch) != 0u; }\n";
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

// The parameter of the entry point that a variable gets its value from, and how it does.
std::string InputOf(const BuiltInName& input, const std::string& name) {
  return std::string("@builtin(") + input.name + ") i" + name + ": " + input.type + ", ";
}
std::string SetOf(const std::string& name) { return name + " = i" + name + "; "; }

std::string VariableOf(const char* space, const std::string& name, const std::string& type) {
  return std::string("var<") + space + "> " + name + ": " + type + ";\n";
}

// The variables outside of functions, and the entry point, which sets those that are inputs.
std::string VariablesText(const Module& module, TypeNames& types, const WgslNeeds& needs,
                          const std::set<uint32_t>& atomics) {
  std::string text = "var<private> rl_zero: u32 = 0u;\n", inputs, sets;
  // A built-in value is the parameter of an entry point once.
  std::string index;
  for (const uint32_t id : needs.variables) {
    const Type& pointer = module.TypeOf(module.TypeIdOf(id));
    const std::string name = "g" + std::to_string(id);
    if (pointer.storage == spv::StorageClassPushConstant) continue;
    if (const auto builtin = module.BuiltInOf(id)) {
      inputs += InputOf(NameOf(*builtin), name);
      sets += SetOf(name);
      if (*builtin == spv::BuiltInLocalInvocationIndex) index = "i" + name;
    }
    const bool shared = pointer.storage == spv::StorageClassWorkgroup;
    const bool atomic = atomics.count(id) > 0;
    text += VariableOf(shared ? "workgroup" : "private", name,
                       atomic ? AtomicType(module, types, pointer.of) : types.NameOf(pointer.of));
  }
  if (needs.shared_branches) {
    if (index.empty()) inputs += "@builtin(local_invocation_index) rl_index: u32, ";
    sets += "rl_invocation = " + (index.empty() ? "rl_index" : index) + "; ";
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
  // The blocks that constants leave are known once a function was written.
  std::map<uint32_t, Flow> flows;
  while (flows.size() < needs.functions.size()) {
    const std::set<uint32_t> all = needs.functions;
    for (const uint32_t id : all) {
      if (flows.count(id) > 0) continue;
      WgslFunction function(module, source, atomics, module.FunctionOf(id), {}, types, needs);
      function.Text();
      flows[id] = function.flow();
    }
  }
  const std::set<uint32_t> with_barriers = FunctionsWithBarriers(module, flows);
  std::string functions;
  for (const auto& [id, flow] : flows) {
    const Function& code = module.FunctionOf(id);
    functions += WgslFunction(module, source, atomics, code,
                              SharedBranches(module, code, flow, with_barriers), types, needs)
                     .Text();
  }
  const std::string variables = VariablesText(module, types, needs, atomics);
  return types.Declarations() + MemoryText(needs, source.binding_count) +
         HighProduct(needs.high_products) + SharedBranch(needs.shared_branches) + variables +
         functions;
}

}  // namespace rullama::webgpu

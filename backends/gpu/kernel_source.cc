#include "backends/gpu/kernel_source.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <iterator>
#include <stdexcept>

namespace rullama::gpu {
namespace {

// ---- ops.def and kernels.def as rows ------------------------------------------------------------

enum class Kind : uint8_t {
  kEnum,
  kEnumerator,
  kRecord,
  kArguments,
  kAddress,
  kWeights,
  kDim,
  kU32,
  kI32,
  kF32,
  kRecords,
  kOptionalRecord,
  kKernel,
  kUses,
  kConstantU32,
  kConstantI32,
  kConstantF32,
  kCapacity,
  kEnd
};
// A row of kernels.def: its first two names, and the text of a value.
struct Row {
  Kind kind;
  std::string_view name, type, value;
};

constexpr Row kDefinitions[] = {
    {Kind::kEnum, "Op", {}, {}},
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  {Kind::kEnumerator, "RL_OP_" #name, {}, #id},
#include <rullama/abi/ops.def>
    {Kind::kEnd, {}, {}, {}},
#define RL_ENUM(Name) {Kind::kEnum, #Name, {}, {}},
#define RL_ENUMERATOR(name, value) {Kind::kEnumerator, #name, {}, #value},
#define RL_END_ENUM {Kind::kEnd, {}, {}, {}},
#define RL_RECORD(Name) {Kind::kRecord, #Name, {}, {}},
#define RL_ARGUMENTS(Name) {Kind::kArguments, #Name, {}, {}},
#define RL_END(Name) {Kind::kEnd, {}, {}, {}},
#define RL_INPUT(name) {Kind::kAddress, #name, {}, {}},
#define RL_OUTPUT(name) {Kind::kAddress, #name, {}, {}},
#define RL_WEIGHTS(name) {Kind::kWeights, #name, {}, {}},
#define RL_PRIVATE(name) {Kind::kAddress, #name, {}, {}},
#define RL_OPTIONAL_INPUT(name) {Kind::kAddress, #name, {}, {}},
#define RL_OPTIONAL_OUTPUT(name) {Kind::kAddress, #name, {}, {}},
#define RL_OPTIONAL_WEIGHTS(name) {Kind::kWeights, #name, {}, {}},
#define RL_ROWS(name) {Kind::kDim, #name, {}, {}},
#define RL_DIM(name) {Kind::kDim, #name, {}, {}},
#define RL_U32(name) {Kind::kU32, #name, {}, {}},
#define RL_I32(name) {Kind::kI32, #name, {}, {}},
#define RL_F32(name) {Kind::kF32, #name, {}, {}},
#define RL_RECORDS(Record, name, count) {Kind::kRecords, #name, #Record, #count},
#define RL_OPTIONAL_RECORD(Record, name) {Kind::kOptionalRecord, #name, #Record, "1"},
#define RL_KERNEL(file, Name, Arguments) {Kind::kKernel, #file, #Arguments, {}},
#define RL_END_KERNEL {Kind::kEnd, {}, {}, {}},
#define RL_USES(Enum) {Kind::kUses, #Enum, {}, {}},
#define RL_CONSTANT_U32(name, value) {Kind::kConstantU32, #name, {}, #value},
#define RL_CONSTANT_I32(name, value) {Kind::kConstantI32, #name, {}, #value},
#define RL_CONSTANT_F32(name, value) {Kind::kConstantF32, #name, {}, #value},
#define RL_CAPACITY(name, value) {Kind::kCapacity, #name, {}, #value},
#include "backends/gpu/kernels.def"
};

using Rows = std::span<const Row>;

// The rows between the one that opens a block and its end.
Rows Block(const Row* opening) {
  const Row* end = std::find_if(opening, std::end(kDefinitions),
                                [](const Row& row) { return row.kind == Kind::kEnd; });
  return {opening + 1, end};
}
Rows Block(Kind kind, std::string_view name) {
  const Row* found = std::ranges::find_if(
      kDefinitions, [&](const Row& row) { return row.kind == kind && row.name == name; });
  if (found == std::end(kDefinitions))
    throw std::logic_error("no " + std::string(name) + " in kernels.def");
  return Block(found);
}

const Row* KernelRow(Shader shader) {
  auto left = static_cast<size_t>(shader);
  return std::ranges::find_if(
      kDefinitions, [&](const Row& row) { return row.kind == Kind::kKernel && left-- == 0; });
}

constexpr Shader kShaders[] = {
#define RL_KERNEL(file, Name, Arguments) Shader::k##Name,
#include "backends/gpu/kernels.def"
};

bool IsRecord(const Row& row) {
  return row.kind == Kind::kRecords || row.kind == Kind::kOptionalRecord;
}

// ---- texts --------------------------------------------------------------------------------------

std::string Joined(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out += part;
  return out;
}

// kv_heads: kKvHeads.
std::string ConstantName(std::string_view name) {
  std::string out = "k";
  bool starts_word = true;
  for (const char c : name) {
    if (c != '_') out += starts_word ? static_cast<char>(std::toupper(c)) : c;
    starts_word = c == '_';
  }
  return out;
}

std::string Upper(std::string_view name) {
  std::string out(name);
  std::ranges::transform(out, out.begin(), [](char c) { return std::toupper(c); });
  return out;
}

struct TypeRow {
  std::string_view name, id;
};
constexpr TypeRow kTypes[] = {
#define RL_DTYPE(id, NAME, text, elements, bytes) {#NAME, #id},
#include <rullama/abi/dtypes.def>
};

// The enumerators that a kernel uses, each by `define`.
template <typename Define>
std::string Numbers(Rows kernel, const Define& define) {
  std::string out;
  for (const Row& row : kernel) {
    if (row.kind != Kind::kUses) continue;
    for (const Row& number : Block(Kind::kEnum, row.name)) out += define(number.name, number.value);
  }
  return out;
}

std::string GlslNumber(std::string_view name, std::string_view value) {
  return "const uint " + std::string(name) + " = " + std::string(value) + ";\n";
}
std::string OpenClNumber(std::string_view name, std::string_view value) {
  return "#define " + std::string(name) + " " + std::string(value) + "\n";
}

struct TypeNames {
  std::string_view address, dim, u32, i32, f32;
};
constexpr TypeNames kGlsl{"uvec2", "Extent", "uint", "int", "float"};
constexpr TypeNames kOpenCl{"Pointer", "Extent", "uint", "int", "float"};

// A member of a struct, other than records.
std::string Member(const Row& row, const TypeNames& types) {
  const auto type = [&]() -> std::string_view {
    switch (row.kind) {
      case Kind::kAddress:
      case Kind::kWeights:
        return types.address;
      case Kind::kDim:
        return types.dim;
      case Kind::kU32:
        return types.u32;
      case Kind::kI32:
        return types.i32;
      case Kind::kF32:
        return types.f32;
      default:
        throw std::logic_error("no field of kernels.def: " + std::string(row.name));
    }
  };
  return "  " + std::string(type()) + " " + std::string(row.name) + ";\n";
}

std::string Members(Rows fields, const TypeNames& types) {
  std::string out;
  for (const Row& row : fields) {
    if (!IsRecord(row)) out += Member(row, types);
  }
  return out;
}

// OpenCL parameters for the addresses among `fields`, each with a comma after it.
std::string Parameters(Rows fields, std::string_view prefix) {
  std::string out;
  for (const Row& row : fields) {
    if (row.kind != Kind::kAddress && row.kind != Kind::kWeights) continue;
    out += row.kind == Kind::kWeights ? "__global const uchar *" : "__global uchar *";
    out += std::string(prefix) + std::string(row.name) + "_buffer, ";
  }
  return out;
}

constexpr std::string_view kMadeFrom = "// Made from backends/gpu/kernels.def.\n";

}  // namespace

std::string_view NameOf(Shader shader) { return KernelRow(shader)->name; }
std::span<const Shader> AllShaders() { return kShaders; }

std::vector<SpecConstant> ConstantsOf(Shader shader) {
  std::vector<SpecConstant> out;
  for (const Row& row : Block(KernelRow(shader))) {
    if (row.kind == Kind::kUses) continue;
    using Type = SpecConstant::Type;
    const Type type = row.kind == Kind::kConstantI32   ? Type::kI32
                      : row.kind == Kind::kConstantF32 ? Type::kF32
                                                       : Type::kU32;
    out.push_back(
        {ConstantName(row.name), type, std::string(row.value), row.kind == Kind::kCapacity});
  }
  return out;
}

size_t FindConstant(Shader shader, std::string_view name) {
  const std::vector<SpecConstant> constants = ConstantsOf(shader);
  const auto found = std::ranges::find(constants, name, &SpecConstant::name);
  return found == constants.end() ? 0 : static_cast<size_t>(found - constants.begin()) + 1;
}

size_t FindCapacity(Shader shader) {
  const std::vector<SpecConstant> constants = ConstantsOf(shader);
  const auto found = std::ranges::find(constants, true, &SpecConstant::is_capacity);
  return found == constants.end() ? 0 : static_cast<size_t>(found - constants.begin()) + 1;
}

std::string GlslTypes() {
  std::string out(kMadeFrom);
  for (const TypeRow& type : kTypes) out += GlslNumber("k" + std::string(type.name), type.id);
  return out;
}

std::string GlslHeader(Shader shader) {
  const Row* kernel = KernelRow(shader);
  std::string out(kMadeFrom);
  out += Numbers(Block(kernel), GlslNumber);
  size_t id = 1;
  for (const SpecConstant& constant : ConstantsOf(shader)) {
    const std::string_view type = constant.type == SpecConstant::Type::kU32   ? kGlsl.u32
                                  : constant.type == SpecConstant::Type::kI32 ? kGlsl.i32
                                                                              : kGlsl.f32;
    out += "layout(constant_id = " + std::to_string(id++) + ") const " + std::string(type) + " " +
           constant.name + " = " + constant.value + ";\n";
  }
  const Rows fields = Block(Kind::kArguments, kernel->type);
  std::string members = "  uvec2 step;\n" + Members(fields, kGlsl);
  for (const Row& row : fields) {
    if (!IsRecord(row)) continue;
    members += "  uvec2 " + std::string(row.name) + ";  // " + std::string(row.type) + "[" +
               std::string(row.value) + "]\n";
    out += "struct " + std::string(row.type) + " {\n" +
           Members(Block(Kind::kRecord, row.type), kGlsl) + "};\n";
  }
  out += "#ifdef TASK\nstruct Push {\n" + members +
         "};\n"
         "layout(buffer_reference, std430, buffer_reference_align = 16) CONSTANT PushAt {\n"
         "  Push v;\n"
         "};\n"
         "// All of it is read at once, before anything waits.\n"
         "Push p = PushAt(task_push).v;\n"
         "#else\nlayout(push_constant, std430) uniform Push {\n" +
         members + "} p;\n#endif\n";
  return out;
}

std::string OpenClTypes() {
  std::string out;
  for (const TypeRow& type : kTypes) out += OpenClNumber("k" + std::string(type.name), type.id);
  return out;
}

std::string OpenClHeader(Shader shader) {
  const Row* kernel = KernelRow(shader);
  const Rows fields = Block(Kind::kArguments, kernel->type);
  std::string constants, records, members, macros;
  size_t id = 1;
  for (const SpecConstant& constant : ConstantsOf(shader)) {
    const std::string value = "C" + std::to_string(id++);
    constants += OpenClNumber(
        constant.name, constant.type == SpecConstant::Type::kI32   ? "((int)" + value + ")"
                       : constant.type == SpecConstant::Type::kF32 ? "as_float(" + value + ")"
                                                                   : value);
  }
  for (const Row& row : fields) {
    if (!IsRecord(row)) continue;
    const Rows of_record = Block(Kind::kRecord, row.type);
    const std::string name = Upper(row.type), type(row.type);
    records += Joined({"typedef struct {\n", Members(of_record, kOpenCl), "} ", type, ";\n"});
    constants += Joined({"#ifndef HAS_", name, "\n#define HAS_", name, " 0\n#endif\n"});
    macros += Joined({"#if HAS_", name, "\n#define ", name, "_PARAMETERS ",
                      Parameters(of_record, Joined({row.name, "_"})), "\n#else\n#define ", name,
                      "_PARAMETERS\n#endif\n"});
    members += Joined({"#if HAS_", name, "\n  ", type, " ", row.name, ";\n#endif\n"});
  }
  std::string parameters = "__global uchar *step_buffer, " + Parameters(fields, "");
  for (const Row& row : fields) {
    if (IsRecord(row)) parameters += Upper(row.type) + "_PARAMETERS ";
  }
  return std::string(kMadeFrom) + Numbers(Block(kernel), OpenClNumber) + constants + records +
         "typedef struct {\n  Pointer step;\n" + Members(fields, kOpenCl) + members + "} Push;\n" +
         macros + "#define ARGUMENTS " + parameters + "const Push push\n";
}

}  // namespace rullama::gpu

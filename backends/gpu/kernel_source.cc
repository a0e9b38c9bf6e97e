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
  kPointsTo,
  kKernel,
  kUses,
  kNumber,
  kShared,
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
#define RL_POINTS_TO(Record) {Kind::kPointsTo, #Record, #Record, {}},
#define RL_KERNEL(file, Name, Arguments) {Kind::kKernel, #file, #Arguments, {}},
#define RL_END_KERNEL {Kind::kEnd, {}, {}, {}},
#define RL_USES(Enum) {Kind::kUses, #Enum, {}, {}},
#define RL_NUMBER(name, value) {Kind::kNumber, #name, {}, #value},
#define RL_SHARED(type, name, count) {Kind::kShared, #name, #type, #count},
#define RL_SHARED_ONE(type, name) {Kind::kShared, #name, #type, {}},
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

bool IsConstant(const Row& row) {
  switch (row.kind) {
    case Kind::kConstantU32:
    case Kind::kConstantI32:
    case Kind::kConstantF32:
    case Kind::kCapacity:
      return true;
    default:
      return false;
  }
}

// ---- texts --------------------------------------------------------------------------------------

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

// ---- texts of a dialect ------------------------------------------------------------------------

struct Word {
  std::string_view name, text;
};

// A text with its words in their places.
std::string Filled(std::string_view text, std::initializer_list<Word> words) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = std::min(text.find('$'), text.size());
    out += text.substr(0, begin);
    text.remove_prefix(begin);
    if (text.empty()) break;
    const size_t end = text.find('$', 1);
    const auto* word = std::ranges::find(words, text.substr(1, end - 1), &Word::name);
    if (end == std::string_view::npos || word == words.end())
      throw std::logic_error("no such word: " + std::string(text.substr(0, end)));
    out += word->text;
    text.remove_prefix(end + 1);
  }
  return out;
}

std::string_view FieldType(const Row& row, const Dialect& dialect) {
  switch (row.kind) {
    case Kind::kAddress:
    case Kind::kWeights:
      return dialect.address;
    case Kind::kDim:
      return dialect.dim;
    case Kind::kU32:
      return dialect.u32;
    case Kind::kI32:
      return dialect.i32;
    case Kind::kF32:
      return dialect.f32;
    default:
      throw std::logic_error("no field of kernels.def: " + std::string(row.name));
  }
}

// The type of shared memory.
std::string_view SharedType(std::string_view name, const Dialect& dialect) {
  if (name == "u32") return dialect.u32;
  if (name == "i32") return dialect.i32;
  if (name == "f32") return dialect.f32;
  if (name == "f32x4") return dialect.f32x4;
  if (name == "u32x4") return dialect.u32x4;
  throw std::logic_error("shared memory of type " + std::string(name));
}

std::string Fields(Rows fields, const Dialect& dialect) {
  std::string out;
  for (const Row& row : fields) {
    if (row.kind == Kind::kPointsTo) continue;
    if (IsRecord(row)) {
      out += Filled(dialect.records, {{"type", row.type},
                                      {"TYPE", Upper(row.type)},
                                      {"name", row.name},
                                      {"count", row.value}});
    } else {
      out += Filled(dialect.field, {{"type", FieldType(row, dialect)}, {"name", row.name}});
    }
  }
  return out;
}

// The parameters of a kernel for the addresses among `fields`, in addition to the arguments
// themselves, and how they are passed on.
struct Parameters {
  std::string declared, passed;
};
Parameters ParametersOf(Rows fields, std::string_view prefix, const Dialect& dialect) {
  Parameters out;
  for (const Row& row : fields) {
    const std::string name = std::string(prefix) + std::string(row.name);
    const std::string type = Upper(row.type);
    if (IsRecord(row)) {
      out.declared += Filled(dialect.record_parameters, {{"TYPE", type}});
      out.passed += Filled(dialect.record_passed, {{"TYPE", type}});
    } else if (row.kind == Kind::kAddress || row.kind == Kind::kWeights) {
      const bool reads = row.kind == Kind::kWeights;
      out.declared += Filled(reads ? dialect.read_parameter : dialect.parameter, {{"name", name}});
      out.passed += Filled(dialect.passed, {{"name", name}});
    }
  }
  return out;
}

// ---- the parts of a kernel's header ------------------------------------------------------------

// The numbers that the host shares.
std::string NumberOf(const Row& row, const Dialect& dialect) {
  return Filled(dialect.number, {{"name", row.name}, {"value", row.value}});
}

std::string NumbersOf(std::string_view of_enum, const Dialect& dialect) {
  std::string out;
  for (const Row& row : Block(Kind::kEnum, of_enum)) out += NumberOf(row, dialect);
  return out;
}

std::string Numbers(Rows kernel, const Dialect& dialect) {
  std::string out;
  for (const Row& row : kernel) {
    if (row.kind == Kind::kNumber) out += NumberOf(row, dialect);
    if (row.kind == Kind::kUses) out += NumbersOf(row.name, dialect);
  }
  return out;
}

std::string Constants(Shader shader, const Dialect& dialect) {
  std::string out;
  size_t id = 1;
  for (const SpecConstant& constant : ConstantsOf(shader)) {
    using enum SpecConstant::Type;
    const std::string number = std::to_string(id++);
    const bool is_i32 = constant.type == kI32, is_f32 = constant.type == kF32;
    const std::string_view as = is_i32 ? dialect.as_i32 : is_f32 ? dialect.as_f32 : "$word$";
    out += Filled(dialect.constant, {{"id", number},
                                     {"type", is_i32   ? dialect.i32
                                              : is_f32 ? dialect.f32
                                                       : dialect.u32},
                                     {"name", constant.name},
                                     {"value", constant.value},
                                     {"converted", Filled(as, {{"word", "C" + number}})}});
  }
  return out;
}

std::string RecordTypes(Rows arguments, const Dialect& dialect) {
  std::string out;
  for (const Row& row : arguments) {
    if (!IsRecord(row) && row.kind != Kind::kPointsTo) continue;
    const Rows fields = Block(Kind::kRecord, row.type);
    const Parameters parameters = ParametersOf(fields, std::string(row.name) + "_", dialect);
    out += Filled(dialect.record, {{"type", row.type},
                                   {"TYPE", Upper(row.type)},
                                   {"fields", Fields(fields, dialect)},
                                   {"parameters", parameters.declared},
                                   {"passed", parameters.passed}});
  }
  return out;
}

std::string SharedMemory(Rows kernel, const Dialect& dialect) {
  std::string variables;
  for (const Row& row : kernel) {
    if (row.kind != Kind::kShared) continue;
    const std::string dimension =
        row.value.empty() ? std::string() : "[" + std::string(row.value) + "]";
    variables += Filled(
        dialect.shared,
        {{"type", SharedType(row.type, dialect)}, {"name", row.name}, {"dimension", dimension}});
  }
  if (variables.empty()) return std::string(dialect.no_shared_memory);
  return Filled(dialect.shared_memory, {{"variables", variables}});
}

std::string Arguments(Rows arguments, const Dialect& dialect) {
  const std::string step = Filled(dialect.field, {{"type", dialect.address}, {"name", "step"}});
  const Parameters parameters = ParametersOf(arguments, "", dialect);
  return Filled(
      dialect.arguments,
      {{"fields", step + Fields(arguments, dialect)},
       {"parameters", Filled(dialect.parameter, {{"name", "step"}}) + parameters.declared},
       {"passed", Filled(dialect.passed, {{"name", "step"}}) + parameters.passed}});
}

constexpr std::string_view kMadeFrom = "// Made from backends/gpu/kernels.def.\n";

}  // namespace

std::string_view NameOf(Shader shader) { return KernelRow(shader)->name; }
std::span<const Shader> AllShaders() { return kShaders; }

std::vector<SpecConstant> ConstantsOf(Shader shader) {
  std::vector<SpecConstant> out;
  for (const Row& row : Block(KernelRow(shader))) {
    if (!IsConstant(row)) continue;
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

std::string TypeNumbers(const Dialect& dialect) {
  std::string out = std::string(kMadeFrom) + NumbersOf("StepWord", dialect);
  for (const TypeRow& type : kTypes) {
    out += Filled(dialect.number, {{"name", "k" + std::string(type.name)}, {"value", type.id}});
  }
  return out;
}

std::string Header(Shader shader, const Dialect& dialect) {
  const Row* row = KernelRow(shader);
  const Rows kernel = Block(row), arguments = Block(Kind::kArguments, row->type);
  return std::string(kMadeFrom) + Numbers(kernel, dialect) + Constants(shader, dialect) +
         RecordTypes(arguments, dialect) + SharedMemory(kernel, dialect) +
         Arguments(arguments, dialect);
}

}  // namespace rullama::gpu

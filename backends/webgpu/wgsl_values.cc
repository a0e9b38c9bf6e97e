#include <rullama/sdk/backend.h>
#include <spirv/unified1/GLSL.std.450.h>

#include "backends/webgpu/wgsl_function.h"

namespace rullama::webgpu {

WgslFunction::Value WgslFunction::ValueOf(uint32_t id) {
  if (const auto found = values_.find(id); found != values_.end()) return found->second;
  if (module_.Global(id) == nullptr) {
    throw sdk::Error(RL_INTERNAL, "a shader uses value " + std::to_string(id) + " too early");
  }
  return {types_.ConstantText(id), module_.WordOf(id)};
}

const Type& WgslFunction::ScalarOf(uint32_t type) const {
  const Type& whole = module_.TypeOf(type);
  return whole.op == spv::OpTypeVector ? module_.TypeOf(whole.of) : whole;
}

bool WgslFunction::IsSigned(uint32_t type) const {
  const Type& scalar = ScalarOf(type);
  return scalar.op == spv::OpTypeInt && scalar.is_signed;
}

// SPIR-V's integers have no sign, operations have one; WGSL's have one.
std::string WgslFunction::Convert(const std::string& text, uint32_t type, bool to_signed) {
  const Type& scalar = ScalarOf(type);
  if (scalar.op != spv::OpTypeInt || scalar.is_signed == to_signed) return text;
  return "bitcast<" + types_.NameWith(type, to_signed ? "i32" : "u32") + ">(" + text + ")";
}

std::string WgslFunction::As(uint32_t id, bool is_signed) {
  return Convert(TextOf(id), module_.TypeIdOf(id), is_signed);
}

std::string WgslFunction::AsType(uint32_t id, uint32_t type) { return As(id, IsSigned(type)); }

void WgslFunction::Declare(uint32_t id) {
  if (!declared_.insert(id).second) return;
  declarations_ +=
      "var v" + std::to_string(id) + ": " + types_.NameOf(module_.TypeIdOf(id)) + ";\n";
}

void WgslFunction::Define(const Instruction& instruction, const std::string& text) {
  const uint32_t id = instruction.result;
  const std::string name = "v" + std::to_string(id);
  values_[id] = {name};
  if (hoisted_.count(id) > 0) {
    Declare(id);
    code_ += name + " = " + text + ";\n";
  } else {
    code_ += "let " + name + " = " + text + ";\n";
  }
}

bool WgslFunction::Known(const Instruction& instruction) {
  if (instruction.type == 0) return false;
  const Type& type = module_.TypeOf(instruction.type);
  const bool number = type.op == spv::OpTypeBool || (type.op == spv::OpTypeInt && type.width == 32);
  if (!number && instruction.op != spv::OpSelect) return false;
  std::vector<uint32_t> words;
  bool one_false = false, one_true = false;
  for (const uint32_t operand : instruction.operands) {
    const auto made = values_.find(operand);
    const auto word = made == values_.end() ? module_.WordOf(operand) : made->second.word;
    if (!word) continue;
    words.push_back(*word);
    (*word == 0 ? one_false : one_true) = true;
  }
  std::optional<uint32_t> known;
  if (instruction.op == spv::OpSelect) {
    const Value condition = ValueOf(instruction[0]);
    if (!condition.word) return false;
    values_[instruction.result] = ValueOf(instruction[*condition.word != 0 ? 1 : 2]);
    return true;
  }
  if (instruction.op == spv::OpLogicalAnd && one_false) known = 0;
  if (instruction.op == spv::OpLogicalOr && one_true) known = 1;
  const bool integers = instruction.operands.size() == words.size() && !words.empty() &&
                        ScalarOf(module_.TypeIdOf(instruction[0])).op != spv::OpTypeFloat;
  if (!known && integers) known = Fold(instruction.op, words);
  if (!known) return false;
  values_[instruction.result] = {types_.Literal(instruction.type, *known), known};
  return true;
}

std::string WgslFunction::Shift(const Instruction& instruction) {
  const bool arithmetic = instruction.op == spv::OpShiftRightArithmetic;
  const bool left = instruction.op == spv::OpShiftLeftLogical;
  const uint32_t type = instruction.type;
  const bool is_signed = left ? IsSigned(type) : arithmetic;
  // The parts of a vector are shifted by those of another.
  const std::string amount = As(instruction[1], false);
  const std::string text =
      As(instruction[0], is_signed) + (left ? " << " : " >> ") + "(" + amount + ")";
  return is_signed == IsSigned(type) ? text : "bitcast<" + types_.NameOf(type) + ">(" + text + ")";
}

std::optional<std::string> WgslFunction::Arithmetic(const Instruction& instruction) {
  const uint32_t type = instruction.type;
  const auto infix = [&](const char* symbol) {
    return AsType(instruction[0], type) + " " + symbol + " " + AsType(instruction[1], type);
  };
  // A quotient or remainder of operands with or without a sign, in the type of the result.
  const auto divide = [&](const char* symbol, bool is_signed) {
    const std::string text =
        As(instruction[0], is_signed) + " " + symbol + " " + As(instruction[1], is_signed);
    return is_signed == IsSigned(type) ? text
                                       : "bitcast<" + types_.NameOf(type) + ">(" + text + ")";
  };
  switch (instruction.op) {
    case spv::OpIAdd:
    case spv::OpFAdd:
      return infix("+");
    case spv::OpISub:
    case spv::OpFSub:
      return infix("-");
    case spv::OpIMul:
    case spv::OpFMul:
    case spv::OpVectorTimesScalar:
      return infix("*");
    case spv::OpFDiv:
      return infix("/");
    case spv::OpUDiv:
      return divide("/", false);
    case spv::OpSDiv:
      return divide("/", true);
    case spv::OpUMod:
      return divide("%", false);
    case spv::OpBitwiseAnd:
      return infix("&");
    case spv::OpBitwiseOr:
      return infix("|");
    case spv::OpBitwiseXor:
      return infix("^");
    case spv::OpShiftLeftLogical:
    case spv::OpShiftRightLogical:
    case spv::OpShiftRightArithmetic:
      return Shift(instruction);
    case spv::OpNot:
      return "~" + AsType(instruction[0], type);
    case spv::OpSNegate:
    case spv::OpFNegate:
      return "-" + AsType(instruction[0], type);
    case spv::OpDot:
      return "dot(" + TextOf(instruction[0]) + ", " + TextOf(instruction[1]) + ")";
    case spv::OpUMulExtended:
    case spv::OpIAddCarry:
      return Extended(instruction);
    case spv::OpExtInst:
      return Library(instruction);
    default:
      return std::nullopt;
  }
}

// A struct of the low and the high word.
std::string WgslFunction::Extended(const Instruction& instruction) {
  const std::string a = As(instruction[0], false), b = As(instruction[1], false);
  const std::string name = types_.NameOf(instruction.type);
  if (instruction.op == spv::OpIAddCarry) {
    return name + "(" + a + " + " + b + ", select(0u, 1u, (" + a + " + " + b + ") < " + a + "))";
  }
  needs_.high_products = true;
  return name + "(" + a + " * " + b + ", rl_mul_hi(" + a + ", " + b + "))";
}

std::optional<std::string> WgslFunction::Comparison(const Instruction& instruction) {
  const auto compare = [&](const char* symbol, bool is_signed) {
    return "(" + As(instruction[0], is_signed) + " " + symbol + " " +
           As(instruction[1], is_signed) + ")";
  };
  const auto alike = [&](const char* symbol) {
    return compare(symbol, IsSigned(module_.TypeIdOf(instruction[0])));
  };
  switch (instruction.op) {
    case spv::OpIEqual:
    case spv::OpFOrdEqual:
    case spv::OpLogicalEqual:
      return alike("==");
    case spv::OpINotEqual:
    case spv::OpFUnordNotEqual:
    case spv::OpLogicalNotEqual:
      return alike("!=");
    case spv::OpULessThan:
      return compare("<", false);
    case spv::OpULessThanEqual:
      return compare("<=", false);
    case spv::OpUGreaterThan:
      return compare(">", false);
    case spv::OpUGreaterThanEqual:
      return compare(">=", false);
    case spv::OpSLessThan:
      return compare("<", true);
    case spv::OpSLessThanEqual:
      return compare("<=", true);
    case spv::OpSGreaterThan:
      return compare(">", true);
    case spv::OpSGreaterThanEqual:
      return compare(">=", true);
    case spv::OpFOrdLessThan:
      return alike("<");
    case spv::OpFOrdLessThanEqual:
      return alike("<=");
    case spv::OpFOrdGreaterThan:
      return alike(">");
    case spv::OpFOrdGreaterThanEqual:
      return alike(">=");
    case spv::OpLogicalAnd:
      return alike("&");
    case spv::OpLogicalOr:
      return alike("|");
    case spv::OpLogicalNot:
      return "!" + TextOf(instruction[0]);
    default:
      return std::nullopt;
  }
}

std::optional<std::string> WgslFunction::Conversion(const Instruction& instruction) {
  const std::string name = types_.NameOf(instruction.type);
  switch (instruction.op) {
    case spv::OpConvertFToU:
    case spv::OpConvertFToS:
      return name + "(" + TextOf(instruction[0]) + ")";
    case spv::OpConvertUToF:
      return name + "(" + As(instruction[0], false) + ")";
    case spv::OpConvertSToF:
      return name + "(" + As(instruction[0], true) + ")";
    case spv::OpUConvert:
      // Elements of 16 bits are words whose high half is zero.
      if (module_.TypeOf(instruction.type).width == 32) return TextOf(instruction[0]);
      return "(" + TextOf(instruction[0]) + ") & 65535u";
    case spv::OpBitFieldSExtract:
    case spv::OpBitFieldUExtract:
      return "extractBits(" + AsType(instruction[0], instruction.type) + ", " +
             As(instruction[1], false) + ", " + As(instruction[2], false) + ")";
    case spv::OpSelect:
      return "select(" + AsType(instruction[2], instruction.type) + ", " +
             AsType(instruction[1], instruction.type) + ", " + TextOf(instruction[0]) + ")";
    default:
      return std::nullopt;
  }
}

std::string WgslFunction::Shuffle(const Instruction& instruction) {
  const uint32_t first = module_.TypeOf(module_.TypeIdOf(instruction[0])).count;
  const std::string texts[] = {TextOf(instruction[0]), TextOf(instruction[1])};
  std::string text = types_.NameOf(instruction.type) + "(";
  for (const uint32_t at : instruction.operands.subspan(2)) {
    const bool second = at >= first;
    text += texts[second ? 1 : 0] + "[" + std::to_string(second ? at - first : at) + "], ";
  }
  return text + ")";
}

std::optional<std::string> WgslFunction::Composite(const Instruction& instruction) {
  switch (instruction.op) {
    case spv::OpCompositeConstruct: {
      std::string text = types_.NameOf(instruction.type) + "(";
      for (const uint32_t part : instruction.operands) text += TextOf(part) + ", ";
      return text + ")";
    }
    case spv::OpCompositeExtract: {
      std::string text = TextOf(instruction[0]);
      uint32_t type = module_.TypeIdOf(instruction[0]);
      for (const uint32_t at : instruction.operands.subspan(1)) {
        const Type& whole = module_.TypeOf(type);
        const bool is_struct = whole.op == spv::OpTypeStruct;
        text += is_struct ? ".m" + std::to_string(at) : "[" + std::to_string(at) + "]";
        type = is_struct ? whole.members.at(at) : whole.of;
      }
      return text;
    }
    case spv::OpVectorExtractDynamic:
      return TextOf(instruction[0]) + "[" + TextOf(instruction[1]) + "]";
    case spv::OpVectorShuffle:
      return Shuffle(instruction);
    default:
      return std::nullopt;
  }
}

void WgslFunction::Bitcast(const Instruction& instruction) {
  Value value = ValueOf(instruction[0]);
  const std::string from = types_.NameOf(module_.TypeIdOf(instruction[0]));
  const std::string to = types_.NameOf(instruction.type);
  if (from != to && value.word) {
    value.text = types_.Literal(instruction.type, *value.word);
  } else if (from != to) {
    return Define(instruction, "bitcast<" + to + ">(" + value.text + ")");
  } else if (hoisted_.count(instruction.result) > 0) {
    Define(instruction, value.text);
    value.text = values_[instruction.result].text;
  }
  values_[instruction.result] = value;
}

namespace {

// The function, and the sign of its integers: 0 if they have none, or it takes floats.
struct LibraryFunction {
  uint32_t number;
  const char* name;
  bool is_signed = false;
};

constexpr LibraryFunction kLibrary[] = {
    {GLSLstd450RoundEven, "round"},
    {GLSLstd450Trunc, "trunc"},
    {GLSLstd450FAbs, "abs"},
    {GLSLstd450SAbs, "abs", true},
    {GLSLstd450Floor, "floor"},
    {GLSLstd450Ceil, "ceil"},
    {GLSLstd450Fract, "fract"},
    {GLSLstd450Sin, "sin"},
    {GLSLstd450Cos, "cos"},
    {GLSLstd450Pow, "pow"},
    {GLSLstd450Exp, "exp"},
    {GLSLstd450Log, "log"},
    {GLSLstd450Exp2, "exp2"},
    {GLSLstd450Log2, "log2"},
    {GLSLstd450Sqrt, "sqrt"},
    {GLSLstd450InverseSqrt, "inverseSqrt"},
    {GLSLstd450FMin, "min"},
    {GLSLstd450UMin, "min"},
    {GLSLstd450SMin, "min", true},
    {GLSLstd450FMax, "max"},
    {GLSLstd450UMax, "max"},
    {GLSLstd450SMax, "max", true},
    {GLSLstd450FClamp, "clamp"},
    {GLSLstd450UClamp, "clamp"},
    {GLSLstd450SClamp, "clamp", true},
    {GLSLstd450FMix, "mix"},
    {GLSLstd450Fma, "fma"},
    {GLSLstd450PackHalf2x16, "pack2x16float"},
    {GLSLstd450UnpackHalf2x16, "unpack2x16float"},
    {GLSLstd450FindILsb, "firstTrailingBit"},
    {GLSLstd450FindSMsb, "firstLeadingBit", true},
    {GLSLstd450FindUMsb, "firstLeadingBit"},
};

}  // namespace

std::string WgslFunction::Library(const Instruction& instruction) {
  for (const LibraryFunction& function : kLibrary) {
    if (function.number != instruction[1]) continue;
    std::string text = std::string(function.name) + "(";
    for (const uint32_t operand : instruction.operands.subspan(2)) {
      text += As(operand, function.is_signed) + ", ";
    }
    text += ")";
    const Type& result = ScalarOf(instruction.type);
    if (result.op != spv::OpTypeInt || result.is_signed == function.is_signed ||
        function.number == GLSLstd450PackHalf2x16) {
      return text;
    }
    return "bitcast<" + types_.NameOf(instruction.type) + ">(" + text + ")";
  }
  throw sdk::Error(RL_INTERNAL,
                   "WGSL has no spelling for function " + std::to_string(instruction[1]));
}

}  // namespace rullama::webgpu

#include "backends/vulkan/khr_checks_test_util.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <unordered_map>

namespace rullama::vulkan {
namespace {

bool IsCapability(const Spirv& code, size_t at, spv::Capability capability) {
  return (code[at] & spv::OpCodeMask) == spv::OpCapability &&
         code[at + 1] == static_cast<uint32_t>(capability);
}

size_t CapabilitiesOf(const Spirv& code, spv::Capability capability) {
  size_t count = 0;
  for (size_t at = kHeaderWords; at < code.size(); at += code[at] >> spv::WordCountShift) {
    if (IsCapability(code, at, capability)) ++count;
  }
  return count;
}

void CheckNoNv(const Spirv& binary, const std::vector<Instruction>& code) {
  for (const spv::Op op : {spv::OpTypeCooperativeMatrixNV, spv::OpCooperativeMatrixLoadNV,
                           spv::OpCooperativeMatrixStoreNV, spv::OpCooperativeMatrixMulAddNV,
                           spv::OpCooperativeMatrixLengthNV}) {
    EXPECT_TRUE(All(code, op).empty()) << op;
  }
  for (const Instruction& i : All(code, spv::OpSpecConstantOp)) {
    EXPECT_NE(i.words[3], static_cast<uint32_t>(spv::OpCooperativeMatrixLengthNV));
  }
  EXPECT_EQ(CapabilitiesOf(binary, spv::CapabilityCooperativeMatrixNV), 0U);
  EXPECT_EQ(CapabilitiesOf(binary, khr::kCapability), 1U);
  std::vector<std::string> extensions;
  for (const Instruction& i : All(code, spv::OpExtension)) {
    extensions.emplace_back(reinterpret_cast<const char*>(&i.words[1]));
  }
  EXPECT_EQ(std::ranges::count(extensions, "SPV_NV_cooperative_matrix"), 0);
  EXPECT_EQ(std::ranges::count(extensions, "SPV_KHR_cooperative_matrix"), 1);
}

// Ids that are used before their declaration, other than those that may be: of functions,
// blocks and values of OpPhi.
std::set<uint32_t> UsedTooSoon(const std::vector<Instruction>& code) {
  std::set<uint32_t> known, later, early;
  for (const Instruction& i : code) {
    if (i.op == spv::OpFunction || i.op == spv::OpLabel) later.insert(i.result);
  }
  for (const Instruction& i : code) {
    const bool names = i.op == spv::OpName || i.op == spv::OpMemberName ||
                       i.op == spv::OpDecorate || i.op == spv::OpMemberDecorate ||
                       i.op == spv::OpEntryPoint || i.op == spv::OpTypeForwardPointer ||
                       i.op == spv::OpPhi;
    for (const uint16_t at : i.ids) {
      const uint32_t id = i.words[at];
      if (!names && id != i.result && !known.contains(id) && !later.contains(id)) early.insert(id);
    }
    EXPECT_TRUE(i.result == 0 || known.insert(i.result).second) << i.result;
    if (i.op == spv::OpTypeForwardPointer) later.insert(i.words[1]);
  }
  return early;
}

// ---- types --------------------------------------------------------------------------------------

class TypeChecker {
 public:
  explicit TypeChecker(const std::vector<Instruction>& code)
      : code_(code), uses_(MatrixTypesIn(code)) {
    for (const Instruction& i : code) {
      if (i.result != 0) definitions_[i.result] = &i;
      if (i.op == spv::OpFunction) function_ = i.result;
      if (i.op == spv::OpFunctionParameter) parameters_[function_].push_back(i.type);
    }
  }
  void Check() {
    for (const Instruction& i : code_) CheckOne(i);
  }

 private:
  [[nodiscard]] const Instruction& Definition(uint32_t id) const { return *definitions_.at(id); }
  [[nodiscard]] uint32_t TypeOf(uint32_t id) const { return Definition(id).type; }
  [[nodiscard]] uint32_t Pointee(uint32_t pointer) const;
  [[nodiscard]] uint32_t PartOf(uint32_t type, uint32_t index) const;
  [[nodiscard]] uint32_t PartAt(uint32_t type, const Instruction& i, size_t first) const;
  void CheckOne(const Instruction& i);
  void CheckMemory(const Instruction& i);
  void CheckComposite(const Instruction& i);
  void CheckFunction(const Instruction& i);
  void CheckMatrix(const Instruction& i);
  void ExpectOfResult(const Instruction& i, size_t first, size_t end, size_t step = 1) const;

  const std::vector<Instruction>& code_;
  const std::map<uint32_t, MatrixUse> uses_;
  std::unordered_map<uint32_t, const Instruction*> definitions_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> parameters_;  // types, by function
  uint32_t function_ = 0;                                           // the one that is looked at
};

uint32_t TypeChecker::Pointee(uint32_t pointer) const {
  const Instruction& type = Definition(TypeOf(pointer));
  EXPECT_EQ(type.op, spv::OpTypePointer);
  return type.words.at(3);
}

// The type of a part of a composite type.
uint32_t TypeChecker::PartOf(uint32_t type, uint32_t index) const {
  const Instruction& whole = Definition(type);
  return whole.words.at(whole.op == spv::OpTypeStruct ? 2 + index : 2);
}

// The type that the indices of an access to a composite lead to, from word `first` on: ids in a
// chain, else numbers.
uint32_t TypeChecker::PartAt(uint32_t type, const Instruction& i, size_t first) const {
  const bool has_ids = i.op == spv::OpAccessChain || i.op == spv::OpInBoundsAccessChain;
  for (size_t at = first; at < i.words.size(); ++at) {
    uint32_t index = i.words[at];
    if (has_ids) index = Definition(type).op == spv::OpTypeStruct ? Definition(index).words[3] : 0;
    type = PartOf(type, index);
  }
  return type;
}

// The values at these words have the type of the result.
void TypeChecker::ExpectOfResult(const Instruction& i, size_t first, size_t end,
                                 size_t step) const {
  for (size_t at = first; at < end; at += step) {
    EXPECT_EQ(TypeOf(i.words[at]), i.type) << NameOf(i.op) << " %" << i.result;
  }
}

void TypeChecker::CheckMemory(const Instruction& i) {
  switch (i.op) {
    case spv::OpLoad:
      EXPECT_EQ(Pointee(i.words[3]), i.type) << i.result;
      break;
    case spv::OpStore:
      EXPECT_EQ(Pointee(i.words[1]), TypeOf(i.words[2])) << i.words[1];
      break;
    case spv::OpCopyMemory:
      EXPECT_EQ(Pointee(i.words[1]), Pointee(i.words[2])) << i.words[1];
      break;
    case spv::OpVariable:
      if (i.words.size() == 4) break;  // it has no initialiser
      EXPECT_EQ(Pointee(i.result), TypeOf(i.words[4])) << i.result;
      break;
    case spv::OpAccessChain:
    case spv::OpInBoundsAccessChain:
      EXPECT_EQ(Pointee(i.result), PartAt(Pointee(i.words[3]), i, 4)) << i.result;
      break;
    default:
      break;
  }
}

void TypeChecker::CheckComposite(const Instruction& i) {
  switch (i.op) {
    case spv::OpCompositeExtract:
      EXPECT_EQ(PartAt(TypeOf(i.words[3]), i, 4), i.type) << i.result;
      break;
    case spv::OpCompositeInsert:
      EXPECT_EQ(TypeOf(i.words[4]), i.type) << i.result;
      EXPECT_EQ(PartAt(i.type, i, 5), TypeOf(i.words[3])) << i.result;
      break;
    case spv::OpCompositeConstruct:
    case spv::OpConstantComposite:
      // A vector may be made of shorter ones.
      if (Definition(i.type).op == spv::OpTypeVector) break;
      for (size_t at = 3; at < i.words.size(); ++at) {
        EXPECT_EQ(PartOf(i.type, static_cast<uint32_t>(at - 3)), TypeOf(i.words[at])) << i.result;
      }
      break;
    default:
      break;
  }
}

void TypeChecker::CheckFunction(const Instruction& i) {
  switch (i.op) {
    case spv::OpFunction: {
      const Spirv& type = Definition(i.words[4]).words;  // the type of its result, then parameters
      EXPECT_EQ(type[2], i.type);
      EXPECT_EQ(Spirv(type.begin() + 3, type.end()), parameters_[i.result]);
      function_ = i.result;
      break;
    }
    case spv::OpFunctionCall: {
      EXPECT_EQ(TypeOf(i.words[3]), i.type) << i.result;
      Spirv given;
      for (size_t at = 4; at < i.words.size(); ++at) given.push_back(TypeOf(i.words[at]));
      EXPECT_EQ(given, parameters_[i.words[3]]) << i.result;
      break;
    }
    case spv::OpReturnValue:
      EXPECT_EQ(TypeOf(i.words[1]), TypeOf(function_)) << i.words[1];
      break;
    default:
      break;
  }
}

void TypeChecker::CheckMatrix(const Instruction& i) {
  if (i.op == khr::kOpLoad) {
    EXPECT_TRUE(uses_.contains(i.type)) << i.result;
  } else if (i.op == khr::kOpStore) {
    EXPECT_TRUE(uses_.contains(TypeOf(i.words[2]))) << i.words[2];
  } else if (i.op == khr::kOpMulAdd) {
    EXPECT_EQ(uses_.at(TypeOf(i.words[3])), MatrixUse::kA) << i.result;
    EXPECT_EQ(uses_.at(TypeOf(i.words[4])), MatrixUse::kB) << i.result;
    EXPECT_EQ(uses_.at(i.type), MatrixUse::kAccumulator) << i.result;
    ExpectOfResult(i, 5, 6);
  }
}

void TypeChecker::CheckOne(const Instruction& i) {
  const size_t words = i.words.size();
  switch (i.op) {
    case spv::OpSelect:
      return ExpectOfResult(i, 4, words);
    case spv::OpPhi:
      return ExpectOfResult(i, 3, words, 2);
    case spv::OpCopyObject:
    case spv::OpFNegate:
    case spv::OpFAdd:
    case spv::OpFSub:
    case spv::OpFMul:
    case spv::OpFDiv:
      return ExpectOfResult(i, 3, words);
    case spv::OpMatrixTimesScalar:
      return ExpectOfResult(i, 3, 4);
    default:
      CheckMemory(i);
      CheckComposite(i);
      CheckFunction(i);
      CheckMatrix(i);
  }
}

// ---- against NV ---------------------------------------------------------------------------------

// Values keep their ids. A type has the same words, and one more for what its matrices are.
void CheckMatrices(const std::vector<Instruction>& before, const std::vector<Instruction>& after) {
  std::map<uint32_t, Spirv> kept;      // by type of KHR: numbers, scope, rows, columns
  std::map<uint32_t, uint32_t> types;  // by value
  for (const Instruction& i : after) {
    types[i.result] = i.type;
    if (i.op == khr::kOpTypeMatrix) kept[i.result] = {i.words.begin() + 2, i.words.end() - 1};
  }
  std::map<uint32_t, Spirv> old;
  for (const Instruction& i : before) {
    if (i.op == spv::OpTypeCooperativeMatrixNV) {
      old[i.result] = {i.words.begin() + 2, i.words.end()};
    }
    if (!old.contains(i.type)) continue;
    EXPECT_EQ(kept[types[i.result]], old[i.type]) << i.result;
  }
}

// A load or store of either extension, without types, so that both can be compared.
struct Access {
  uint32_t result, pointer, stride, is_by_columns;
  Spirv more;  // how memory is accessed; of a store also the matrix
  bool operator==(const Access&) const = default;
};

std::vector<Access> AccessesOfNv(const std::vector<Instruction>& code) {
  std::map<uint32_t, uint32_t> truths;
  for (const Instruction& i : All(code, spv::OpConstantTrue)) truths[i.result] = 1;
  for (const Instruction& i : All(code, spv::OpConstantFalse)) truths[i.result] = 0;
  std::vector<Access> all;
  for (const Instruction& i : code) {
    const Spirv& w = i.words;
    if (i.op == spv::OpCooperativeMatrixLoadNV) {
      all.push_back({w[2], w[3], w[4], truths.at(w[5]), {w.begin() + 6, w.end()}});
    } else if (i.op == spv::OpCooperativeMatrixStoreNV) {
      all.push_back({0, w[1], w[3], truths.at(w[4]), {w.begin() + 5, w.end()}});
      all.back().more.push_back(w[2]);
    }
  }
  return all;
}

std::vector<Access> AccessesOfKhr(const std::vector<Instruction>& code) {
  const auto constants = ConstantsIn(code);
  std::vector<Access> all;
  for (const Instruction& i : code) {
    const Spirv& w = i.words;
    if (i.op == khr::kOpLoad) {
      all.push_back({w[2], w[3], w[5], constants.at(w[4]), {w.begin() + 6, w.end()}});
    } else if (i.op == khr::kOpStore) {
      all.push_back({0, w[1], w[4], constants.at(w[3]), {w.begin() + 5, w.end()}});
      all.back().more.push_back(w[2]);
    }
  }
  return all;
}

}  // namespace

// SPIRV-Tools of older distributions do not know KHR's instructions, but others of the same form.
std::vector<Instruction> ReadKhr(const Spirv& code) {
  const std::map<spv::Op, spv::Op> alike = {{khr::kOpTypeMatrix, spv::OpTypeStruct},
                                            {khr::kOpLoad, spv::OpCooperativeMatrixLoadNV},
                                            {khr::kOpStore, spv::OpCooperativeMatrixStoreNV},
                                            {khr::kOpMulAdd, spv::OpCooperativeMatrixMulAddNV},
                                            {khr::kOpLength, spv::OpCooperativeMatrixLengthNV}};
  Spirv known = code;
  std::vector<spv::Op> ops;
  for (size_t at = kHeaderWords; at < known.size(); at += known[at] >> spv::WordCountShift) {
    const auto op = static_cast<spv::Op>(known[at] & spv::OpCodeMask);
    ops.push_back(op);
    const auto found = alike.find(op);
    if (found != alike.end()) known[at] = (known[at] & ~spv::OpCodeMask) | found->second;
    if (IsCapability(known, at, khr::kCapability)) {
      known[at + 1] = spv::CapabilityCooperativeMatrixNV;
    }
  }
  std::vector<Instruction> instructions = Parse(known);
  EXPECT_EQ(instructions.size(), ops.size());
  for (size_t i = 0; i < ops.size(); ++i) instructions[i].op = ops[i];
  return instructions;
}

std::vector<Instruction> All(const std::vector<Instruction>& code, spv::Op op) {
  std::vector<Instruction> found;
  std::ranges::copy_if(code, std::back_inserter(found),
                       [&](const Instruction& instruction) { return instruction.op == op; });
  return found;
}

std::map<uint32_t, uint32_t> ConstantsIn(const std::vector<Instruction>& code) {
  std::map<uint32_t, uint32_t> values;
  for (const Instruction& i : All(code, spv::OpConstant)) values[i.result] = i.words[3];
  return values;
}

std::map<uint32_t, MatrixUse> MatrixTypesIn(const std::vector<Instruction>& code) {
  std::map<uint32_t, MatrixUse> uses;
  const auto constants = ConstantsIn(code);
  for (const Instruction& type : All(code, khr::kOpTypeMatrix)) {
    EXPECT_EQ(type.words.size(), 7U);
    uses[type.result] = static_cast<MatrixUse>(constants.at(type.words.back()));
  }
  return uses;
}

std::vector<MatrixUse> UsesOfLoads(const std::vector<Instruction>& code) {
  const auto uses = MatrixTypesIn(code);
  std::vector<MatrixUse> loaded;
  for (const Instruction& load : All(code, khr::kOpLoad)) loaded.push_back(uses.at(load.type));
  return loaded;
}

void CheckKhr(const Spirv& nv, const Spirv& khr) {
  const std::vector<Instruction> before = Parse(nv), after = ReadKhr(khr);
  CheckNoNv(khr, after);
  EXPECT_EQ(UsedTooSoon(after), std::set<uint32_t>());
  for (const Instruction& i : after) EXPECT_LT(i.result, khr[kBoundAt]);
  TypeChecker(after).Check();
  CheckMatrices(before, after);
  EXPECT_TRUE(AccessesOfKhr(after) == AccessesOfNv(before));
  EXPECT_EQ(All(after, khr::kOpMulAdd).size(),
            All(before, spv::OpCooperativeMatrixMulAddNV).size());
}

}  // namespace rullama::vulkan

#include "backends/vulkan/matrix_uses.h"

#include <rullama/sdk/backend.h>

#include <algorithm>
#include <set>

#include "backends/gpu/target.h"

namespace rullama::vulkan {
namespace {

constexpr uint32_t kHalfBits = 16, kFloatBits = 32;

// Whether all operands of an instruction and its result that hold matrices of one type are the same
// operand of products.
bool IsOfOneOperand(spv::Op op) {
  switch (op) {
    case spv::OpVariable:
    case spv::OpLoad:
    case spv::OpStore:
    case spv::OpCopyMemory:
    case spv::OpCopyObject:
    case spv::OpPhi:
    case spv::OpSelect:
    case spv::OpCompositeConstruct:
    case spv::OpConstantComposite:
    case spv::OpConstantNull:
    case spv::OpUndef:
    case spv::OpFunctionParameter:
    case spv::OpCooperativeMatrixLoadNV:
    case spv::OpCooperativeMatrixStoreNV:
    case spv::OpFNegate:
    case spv::OpFAdd:
    case spv::OpFSub:
    case spv::OpFMul:
    case spv::OpFDiv:
    case spv::OpMatrixTimesScalar:
      return true;
    default:
      return false;
  }
}

// Whether an instruction moves and computes no matrix: it declares types or says something about
// values.
bool HasNoMatrix(const Instruction& instruction) {
  switch (instruction.op) {
    case spv::OpName:
    case spv::OpMemberName:
    case spv::OpEntryPoint:
    case spv::OpTypeCooperativeMatrixNV:
    case spv::OpTypePointer:
    case spv::OpTypeArray:
    case spv::OpTypeStruct:
    case spv::OpTypeFunction:
    case spv::OpCooperativeMatrixLengthNV:
      return true;
    case spv::OpSpecConstantOp:
      return instruction.words[3] == spv::OpCooperativeMatrixLengthNV;
    default:
      return false;
  }
}

}  // namespace

std::string NameOf(MatrixUse use) {
  switch (use) {
    case MatrixUse::kA:
      return "A";
    case MatrixUse::kB:
      return "B";
    case MatrixUse::kAccumulator:
      break;
  }
  return "an accumulator";
}

void FailOnMatrices(const std::string& what) {
  throw sdk::Error(RL_INTERNAL, "a shader for VK_KHR_cooperative_matrix: " + what +
                                    "; the option cooperative_matrix avoids it as nv, where "
                                    "the device has that, or off");
}

MatrixUses::MatrixUses(const std::vector<Instruction>& code) : code_(code) {
  for (const Instruction& instruction : code) Declare(instruction);
  for (const Instruction& instruction : code) Follow(instruction);
  CollectKnown();
}

// ---- types and names ----------------------------------------------------------------------------

void MatrixUses::Declare(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  if (instruction.result != 0) {
    definitions_[instruction.result] = static_cast<size_t>(&instruction - code_.data());
  }
  switch (instruction.op) {
    case spv::OpName:
      names_[words[1]] = reinterpret_cast<const char*>(&words[2]);
      break;
    case spv::OpFunction:
      function_ = instruction.result;
      break;
    case spv::OpFunctionParameter:
      parameters_[function_].push_back(instruction.result);
      break;
    default:
      DeclareType(instruction);
      break;
  }
}

void MatrixUses::DeclareType(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  size_t parts = words.size();  // the first word that is the type of a part
  switch (instruction.op) {
    case spv::OpTypeCooperativeMatrixNV:
      if (Definition(words[2]).op != spv::OpTypeFloat) {
        FailOnMatrices("matrices of integers, which are not supported");
      }
      within_[instruction.result] = {instruction.result};
      return;
    case spv::OpTypePointer:
      parts = 3;
      break;
    case spv::OpTypeArray:
    case spv::OpTypeStruct:
    case spv::OpTypeFunction:
      parts = 2;
      break;
    default:
      return;
  }
  std::set<uint32_t> all;
  for (size_t i = parts; i < words.size(); ++i) {
    const std::vector<uint32_t>& within = Within(words[i]);
    all.insert(within.begin(), within.end());
  }
  if (!all.empty()) within_[instruction.result].assign(all.begin(), all.end());
}

const std::vector<uint32_t>& MatrixUses::Within(uint32_t type) const {
  static const std::vector<uint32_t> kNone;
  const auto found = within_.find(type);
  return found == within_.end() ? kNone : found->second;
}

const std::vector<uint32_t>& MatrixUses::WithinValue(uint32_t id) const {
  const auto found = definitions_.find(id);
  return Within(found == definitions_.end() ? 0 : code_[found->second].type);
}

const Instruction& MatrixUses::Definition(uint32_t id) const {
  const auto found = definitions_.find(id);
  if (found == definitions_.end()) FailOnMatrices(NameOf(id) + " is not defined");
  return code_[found->second];
}

std::string MatrixUses::NameOf(uint32_t id) const {
  const auto found = names_.find(id);
  std::string name = "%" + std::to_string(id);
  if (found != names_.end() && !found->second.empty()) name += " (" + found->second + ")";
  return name;
}

// ---- places that are the same operand -----------------------------------------------------------

uint32_t MatrixUses::PlaceOf(uint32_t value, uint32_t matrix) {
  const auto next = static_cast<uint32_t>(places_.size());
  const auto [found, fresh] = place_of_.try_emplace({value, matrix}, next);
  if (fresh) places_.push_back({next, std::nullopt});
  return found->second;
}

uint32_t MatrixUses::Root(uint32_t place) {
  while (places_[place].parent != place) {
    place = places_[place].parent = places_[places_[place].parent].parent;
  }
  return place;
}

void MatrixUses::FailOnTwoUses(uint32_t value, MatrixUse use, MatrixUse other) const {
  FailOnMatrices("matrix " + NameOf(value) + " is " + vulkan::NameOf(use) + " and also " +
                 vulkan::NameOf(other) + " of products, expected is one of them");
}

void MatrixUses::Unite(uint32_t value, uint32_t other, uint32_t matrix) {
  const uint32_t a = Root(PlaceOf(value, matrix)), b = Root(PlaceOf(other, matrix));
  if (a == b) return;
  const std::optional<MatrixUse> use = places_[a].use, other_use = places_[b].use;
  if (use && other_use && *use != *other_use) {
    FailOnTwoUses(value != kElements ? value : other, *use, *other_use);
  }
  places_[a].use = use ? use : other_use;
  places_[b].parent = a;
}

void MatrixUses::UniteAll(const Instruction& instruction) {
  std::map<uint32_t, uint32_t> first;  // by type of matrix: a value with such
  for (const uint16_t at : instruction.ids) {
    const uint32_t id = instruction.words[at];
    for (const uint32_t matrix : WithinValue(id)) {
      const auto [found, fresh] = first.try_emplace(matrix, id);
      if (!fresh) Unite(found->second, id, matrix);
    }
  }
}

void MatrixUses::Pin(uint32_t value, MatrixUse use) {
  const uint32_t type = Definition(value).type;
  if (Within(type) != std::vector<uint32_t>{type}) {
    FailOnMatrices(NameOf(value) + " is an operand of a product, but no matrix");
  }
  Place& root = places_[Root(PlaceOf(value, type))];
  if (root.use && *root.use != use) FailOnTwoUses(value, *root.use, use);
  root.use = use;
}

void MatrixUses::CollectKnown() {
  for (const auto& [key, place] : place_of_) {
    const std::optional<MatrixUse> use = places_[Root(place)].use;
    if (use) known_[key.second].insert(*use);
  }
}

bool MatrixUses::Allows(uint32_t matrix, MatrixUse use) const {
  const Spirv& words = Definition(matrix).words;  // from 2 on: elements, scope, rows, columns
  const auto is = [&](uint32_t constant, uint32_t value) {
    const Instruction& definition = Definition(constant);
    return definition.op == spv::OpConstant && definition.words[3] == value;
  };
  const uint32_t bits = Definition(words[2]).words[2];
  return bits == (use == MatrixUse::kAccumulator ? kFloatBits : kHalfBits) &&
         is(words[3], spv::ScopeSubgroup) && is(words[4], gpu::kMatrixSide) &&
         is(words[5], gpu::kMatrixSide);
}

bool MatrixUses::HasElements(uint32_t root) {
  return std::ranges::any_of(place_of_, [&](const auto& entry) {
    return entry.first.first == kElements && Root(entry.second) == root;
  });
}

MatrixUse MatrixUses::Choose(uint32_t root, uint32_t value, uint32_t matrix) {
  const std::set<MatrixUse>& known = known_[matrix];
  if (known.size() == 1 || (!known.empty() && !HasElements(root))) return *known.begin();
  const std::string name =
      value == kElements ? "an element of type " + NameOf(matrix) : "matrix " + NameOf(value);
  FailOnMatrices(name + " may be A, B or an accumulator: no product has it" +
                 (known.empty() ? ", nor any other of its type"
                                : ", and others of its type are different operands"));
}

MatrixUse MatrixUses::Of(uint32_t value, uint32_t matrix) {
  const uint32_t root = Root(PlaceOf(value, matrix));
  if (!places_[root].use) places_[root].use = Choose(root, value, matrix);
  return *places_[root].use;
}

// ---- instructions -------------------------------------------------------------------------------

void MatrixUses::FollowProduct(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  Pin(instruction.result, MatrixUse::kAccumulator);
  Pin(words[3], MatrixUse::kA);
  Pin(words[4], MatrixUse::kB);
  Pin(words[5], MatrixUse::kAccumulator);
}

// `whole`: the word of the composite or pointer. `part`: that of what lies within it; without
// matrices it is an element.
void MatrixUses::FollowElements(const Instruction& instruction, size_t whole, size_t part) {
  UniteAll(instruction);
  if (!WithinValue(instruction.words[part]).empty()) return;
  const uint32_t value = instruction.words[whole];
  for (const uint32_t matrix : WithinValue(value)) Unite(value, kElements, matrix);
}

void MatrixUses::FollowCall(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  const auto unite = [&](uint32_t here, uint32_t there) {
    for (const uint32_t matrix : WithinValue(here)) Unite(here, there, matrix);
  };
  unite(instruction.result, words[3]);
  const std::vector<uint32_t>& parameters = parameters_[words[3]];
  if (parameters.size() + 4 != words.size()) {
    FailOnMatrices("a call of " + NameOf(words[3]) + " has not as many arguments as parameters");
  }
  for (size_t i = 0; i < parameters.size(); ++i) unite(words[4 + i], parameters[i]);
}

void MatrixUses::RefuseMatrices(const Instruction& instruction) const {
  for (const uint16_t at : instruction.ids) {
    const uint32_t id = instruction.words[at];
    if (Within(id).empty() && WithinValue(id).empty()) continue;
    FailOnMatrices(vulkan::NameOf(instruction.op) + " of " + NameOf(id) +
                   ", which has matrices, is not supported");
  }
}

void MatrixUses::Follow(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  switch (instruction.op) {
    case spv::OpCooperativeMatrixMulAddNV:
      return FollowProduct(instruction);
    case spv::OpAccessChain:
    case spv::OpInBoundsAccessChain:
    case spv::OpCompositeExtract:
      return FollowElements(instruction, 3, 2);
    case spv::OpCompositeInsert:
      return FollowElements(instruction, 4, 3);
    case spv::OpFunctionCall:
      return FollowCall(instruction);
    case spv::OpReturnValue:
      for (const uint32_t m : WithinValue(words[1])) Unite(words[1], function_, m);
      return;
    case spv::OpFunction:
      function_ = instruction.result;
      return;
    default:
      if (instruction.op == spv::OpDecorate && Within(words[1]).empty()) return;  // of a value
      if (IsOfOneOperand(instruction.op)) return UniteAll(instruction);
      if (!HasNoMatrix(instruction)) RefuseMatrices(instruction);
  }
}

}  // namespace rullama::vulkan

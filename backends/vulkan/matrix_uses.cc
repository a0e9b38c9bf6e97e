#include "backends/vulkan/matrix_uses.h"

#include <rullama/sdk/backend.h>

#include <algorithm>
#include <array>
#include <set>

namespace rullama::vulkan {
namespace {

constexpr std::array kUseNames = {"A", "B", "an accumulator"};

}  // namespace

void FailOnMatrices(const std::string& what) {
  throw sdk::Error(RL_INTERNAL, "a shader for VK_KHR_cooperative_matrix: " + what);
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
  if (fresh) places_.push_back({next, kUnknown});
  return found->second;
}

uint32_t MatrixUses::Root(uint32_t place) {
  while (places_[place].parent != place) {
    place = places_[place].parent = places_[places_[place].parent].parent;
  }
  return place;
}

void MatrixUses::FailOnTwoUses(uint32_t value, int use, int other) const {
  FailOnMatrices("matrix " + NameOf(value) + " is " + kUseNames[static_cast<size_t>(use)] +
                 " and also " + kUseNames[static_cast<size_t>(other)] +
                 " of products, expected is one of them");
}

void MatrixUses::Unite(uint32_t value, uint32_t matrix, uint32_t other, uint32_t other_matrix) {
  const uint32_t a = Root(PlaceOf(value, matrix)), b = Root(PlaceOf(other, other_matrix));
  if (a == b) return;
  const int use = places_[a].use, other_use = places_[b].use;
  if (use != kUnknown && other_use != kUnknown && use != other_use) {
    FailOnTwoUses(value != kElements ? value : other, use, other_use);
  }
  places_[a].use = use != kUnknown ? use : other_use;
  places_[b].parent = a;
}

void MatrixUses::UniteAll(const Instruction& instruction) {
  std::map<uint32_t, uint32_t> first;  // by type of matrix: a value with such
  for (const uint16_t at : instruction.ids) {
    const uint32_t id = instruction.words[at];
    for (const uint32_t matrix : WithinValue(id)) {
      const auto [found, fresh] = first.try_emplace(matrix, id);
      if (!fresh) Unite(found->second, matrix, id, matrix);
    }
  }
}

void MatrixUses::Pin(uint32_t value, MatrixUse use) {
  const uint32_t type = Definition(value).type;
  if (Within(type) != std::vector<uint32_t>{type}) {
    FailOnMatrices(NameOf(value) + " is an operand of a product, but no matrix");
  }
  Place& root = places_[Root(PlaceOf(value, type))];
  const int wanted = static_cast<int>(use);
  if (root.use != kUnknown && root.use != wanted) {
    FailOnTwoUses(value, root.use, wanted);
  }
  root.use = wanted;
}

void MatrixUses::CollectKnown() {
  for (const auto& [key, place] : place_of_) {
    const int use = places_[Root(place)].use;
    if (use != kUnknown) known_[key.second].insert(use);
  }
}

bool MatrixUses::HasElements(uint32_t root) {
  return std::ranges::any_of(place_of_, [&](const auto& entry) {
    return entry.first.first == kElements && Root(entry.second) == root;
  });
}

MatrixUse MatrixUses::Of(uint32_t value, uint32_t matrix) {
  const uint32_t root = Root(PlaceOf(value, matrix));
  if (places_[root].use == kUnknown) {
    const std::set<int>& known = known_[matrix];
    if (known.empty() || (known.size() > 1 && (value == kElements || HasElements(root)))) {
      FailOnMatrices((value == kElements ? "an element of type " : "matrix ") +
                     NameOf(value == kElements ? matrix : value) +
                     " may be of A, B or an accumulator: no product has it, and others of its "
                     "type are " +
                     (known.empty() ? "in none either" : "different operands"));
    }
    places_[root].use = *known.begin();
  }
  return static_cast<MatrixUse>(places_[root].use);
}

// ---- instructions -------------------------------------------------------------------------------

void MatrixUses::FollowProduct(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  Pin(instruction.result, MatrixUse::kAccumulator);
  Pin(words[3], MatrixUse::kA);
  Pin(words[4], MatrixUse::kB);
  Pin(words[5], MatrixUse::kAccumulator);
}

// `whole` and `part`: the words that are something with matrices and something within it. If the
// part has none, it is an element.
void MatrixUses::FollowElements(const Instruction& instruction, size_t whole, size_t part) {
  UniteAll(instruction);
  if (!WithinValue(instruction.words[part]).empty()) return;
  const uint32_t value = instruction.words[whole];
  for (const uint32_t matrix : WithinValue(value)) Unite(value, matrix, kElements, matrix);
}

void MatrixUses::FollowCall(const Instruction& instruction) {
  const Spirv& words = instruction.words;
  const auto unite = [&](uint32_t here, uint32_t there) {
    for (const uint32_t matrix : WithinValue(here)) Unite(here, matrix, there, matrix);
  };
  unite(instruction.result, words[3]);
  const std::vector<uint32_t>& parameters = parameters_[words[3]];
  if (parameters.size() + 4 != words.size()) FailOnMatrices("a call with missing arguments");
  for (size_t i = 0; i < parameters.size(); ++i) unite(words[4 + i], parameters[i]);
}

// KHR converts elements only: the result is the same operand.
void MatrixUses::FollowConversion(const Instruction& instruction) {
  const uint32_t from = instruction.words[3];
  const std::vector<uint32_t>&before = WithinValue(from), &after = WithinValue(instruction.result);
  if (before.empty() && after.empty()) return;
  if (before.size() != 1 || after.size() != 1) return RefuseUnknown(instruction);
  Unite(instruction.result, after.front(), from, before.front());
}

void MatrixUses::RefuseUnknown(const Instruction& instruction) const {
  for (const uint16_t at : instruction.ids) {
    const uint32_t id = instruction.words[at];
    if (Within(id).empty() && WithinValue(id).empty()) continue;
    FailOnMatrices("instruction " + std::to_string(instruction.op) + " has " + NameOf(id) +
                   ", which has matrices, and is not known");
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
      for (const uint32_t m : WithinValue(words[1])) Unite(words[1], m, function_, m);
      return;
    case spv::OpFConvert:
      return FollowConversion(instruction);
    case spv::OpFunction:
      function_ = instruction.result;
      return;
    // Nothing else is the same operand as these, or their operands are.
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
      return UniteAll(instruction);
    // These say something about values, or name types only.
    case spv::OpName:
    case spv::OpMemberName:
    case spv::OpEntryPoint:
    case spv::OpTypeCooperativeMatrixNV:
    case spv::OpTypePointer:
    case spv::OpTypeArray:
    case spv::OpTypeStruct:
    case spv::OpTypeFunction:
    case spv::OpCooperativeMatrixLengthNV:
    case spv::OpSpecConstantOp:
      return;
    case spv::OpDecorate:  // of a value
      if (Within(words[1]).empty()) return;
      [[fallthrough]];
    default:
      return RefuseUnknown(instruction);
  }
}

}  // namespace rullama::vulkan

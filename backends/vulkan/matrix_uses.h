// Which operand of a product each cooperative matrix of a shader is.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/vulkan/instructions.h"

namespace rullama::vulkan {

// An operand of a product, by its number in SPIR-V.
enum class MatrixUse : uint32_t { kA = 0, kB = 1, kAccumulator = 2 };

// "A", "B" or "an accumulator".
std::string NameOf(MatrixUse use);

// Throws sdk::Error(RL_INTERNAL): a shader's matrices cannot be those of KHR.
[[noreturn]] void FailOnMatrices(const std::string& what);

// Follows the matrices of SPV_NV_cooperative_matrix from the products through variables, copies,
// calls, arrays and arithmetic. A value here has an id; values that hold matrices of several types
// are several operands, one for each type. Conversions between types are refused: in KHR the result
// is the same operand, and devices need not have that of both types.
class MatrixUses {
 public:
  // Throws sdk::Error(RL_INTERNAL) if a matrix is two operands, or an instruction that takes one is
  // not supported. `code` has to outlive this.
  explicit MatrixUses(const std::vector<Instruction>& code);

  // The types of matrices within a type, ascending.
  [[nodiscard]] const std::vector<uint32_t>& Within(uint32_t type) const;
  // The use of the matrices of type `matrix` in a value. If no product has them, they take the use
  // of some other matrix of their type: which one makes no difference, unless their elements are
  // used singly and others of the type are different operands. Then, and if no product has any
  // matrix of the type, this throws sdk::Error(RL_INTERNAL).
  MatrixUse Of(uint32_t value, uint32_t matrix);
  // The use of the matrices of this type whose elements are used singly, or, if there are none, of
  // all of that type. Throws the same.
  MatrixUse OfElements(uint32_t matrix) { return Of(kElements, matrix); }
  // Whether matrices of a type may be this operand: devices are asked for products of 16 x 16 x 16
  // numbers of f16 into f32 by a subgroup alone (matrix_units.h), and other types are not valid
  // (VUID-RuntimeSpirv-OpTypeCooperativeMatrixKHR-10163).
  [[nodiscard]] bool Allows(uint32_t matrix, MatrixUse use) const;
  [[nodiscard]] const Instruction& Definition(uint32_t id) const;

 private:
  static constexpr uint32_t kElements = 0;  // in place of a value
  struct Place {                            // in a forest of places that are the same operand
    uint32_t parent;
    std::optional<MatrixUse> use;  // of a root
  };

  void Declare(const Instruction& instruction);
  void DeclareType(const Instruction& instruction);
  void Follow(const Instruction& instruction);
  void FollowElements(const Instruction& instruction, size_t whole, size_t part);
  void FollowCall(const Instruction& instruction);
  void FollowProduct(const Instruction& instruction);
  void RefuseMatrices(const Instruction& instruction) const;
  [[nodiscard]] const std::vector<uint32_t>& WithinValue(uint32_t id) const;
  [[nodiscard]] std::string NameOf(uint32_t id) const;
  [[noreturn]] void FailOnTwoUses(uint32_t value, MatrixUse use, MatrixUse other) const;
  uint32_t PlaceOf(uint32_t value, uint32_t matrix);
  uint32_t Root(uint32_t place);
  void Unite(uint32_t value, uint32_t other, uint32_t matrix);
  void UniteAll(const Instruction& instruction);
  void CollectKnown();
  bool HasElements(uint32_t root);
  MatrixUse Choose(uint32_t root, uint32_t value, uint32_t matrix);
  void Pin(uint32_t value, MatrixUse use);

  const std::vector<Instruction>& code_;
  std::unordered_map<uint32_t, size_t> definitions_;  // by id: its instruction
  std::unordered_map<uint32_t, std::string> names_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> within_;      // by type
  std::unordered_map<uint32_t, std::vector<uint32_t>> parameters_;  // by function
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> place_of_;      // by value and type of matrix
  std::vector<Place> places_;
  std::unordered_map<uint32_t, std::set<MatrixUse>> known_;  // by type of matrix: what products say
  uint32_t function_ = 0;                                    // the one that is looked at
};

}  // namespace rullama::vulkan

// Positions and roles of the operands of every op, generated from ops.def.
// `operands::MatMul::weight` is the index of operand `weight` of matmul. Constants only; safe from
// any thread.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace rullama {

// The mapping from the wanted rows of an op's results to rows of an operand (see ops.def).
enum class RowRule : uint8_t { kSame, kAll, kWhole };

// The use an op makes of an operand (see ops.def).
enum class OperandRole : uint8_t { kData, kWeight, kTable, kState, kIndex };

namespace operands {

// The names are those of ops.def, of the text form and of the documentation.
// NOLINTBEGIN(readability-identifier-naming)
#define RL_OPERAND(name, rule, role, optional) name,
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  struct Name {                                                         \
    enum Index : uint32_t { inputs kCount };                            \
  };
#include <rullama/abi/ops.def>
// NOLINTEND(readability-identifier-naming)

}  // namespace operands

namespace operands_internal {

#define RL_OPERAND(name, rule, role, optional) OperandRole::role,
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  inline constexpr OperandRole k##Name##Roles[] = {inputs};
#include <rullama/abi/ops.def>

}  // namespace operands_internal

// The role of operand `index` of an op of this kind (RL_OP_matmul); kData beyond the table.
constexpr OperandRole RoleOf(uint32_t kind, size_t index) {
  switch (kind) {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  case id:                                                              \
    return index < std::size(operands_internal::k##Name##Roles)         \
               ? operands_internal::k##Name##Roles[index]               \
               : OperandRole::kData;
#include <rullama/abi/ops.def>
    default:
      return OperandRole::kData;
  }
}

// Whether the core can express an op of this kind in simpler ops; false beyond the table.
constexpr bool IsComposite(uint32_t kind) {
  switch (kind) {
#define RL_PRIMITIVE false
#define RL_EFFECT false
#define RL_COMPOSITE true
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  case id: /* NOLINT(bugprone-branch-clone): a table */                 \
    return traits;
#include <rullama/abi/ops.def>
    default:
      return false;
  }
}

}  // namespace rullama

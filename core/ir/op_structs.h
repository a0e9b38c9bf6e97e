// One struct for each op, generated from ops.def: operands first, then attributes, both under their
// names in the table. GraphBuilder::Add takes them:
//
//   b.Add(ops::RmsNorm{.x = x, .weight = weight, .eps = 1e-6F}, "norm")
//
// An operand left at kNoValue is absent, which is an error unless ops.def allows it. Attributes
// begin at zero. Plain data.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "core/ir/graph.h"
#include "core/ir/ops.h"
#include "core/ir/types.h"

namespace rullama::ops {

// NOLINTBEGIN(readability-identifier-naming): operands, attributes and results keep their names
// C++ types of the enumerations that attributes use, under the names of rullama_abi.h.
namespace attr_types {
using ::rl_binary;
using ::rl_mask;
using ::rl_reduce;
using ::rl_unary;
using rl_dtype = DType;
}  // namespace attr_types

#define RL_OPERAND(name, rule, role, optional) ValueId name = kNoValue;
#define RL_I32(name) int32_t name = 0;
#define RL_I64(name) int64_t name = 0;
#define RL_F32(name) float name = 0;
#define RL_ENUM(type, name) attr_types::type name{};
#define RL_RESULT(name) ValueId name = kNoValue;
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  struct Name {                                                         \
    static constexpr OpKind kKind = OpKind::k##Name;                    \
    struct Results {                                                    \
      results                                                           \
    };                                                                  \
    inputs attributes                                                   \
  };
#include <rullama/abi/ops.def>
// NOLINTEND(readability-identifier-naming)

#define RL_OPERAND(name, rule, role, optional) op.name,
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  inline std::vector<ValueId> OperandsOf(const Name& op) { return {inputs}; }
#include <rullama/abi/ops.def>

#define RL_I32(name) attrs.name = op.name;
#define RL_I64(name) attrs.name = op.name;
#define RL_F32(name) attrs.name = op.name;
#define RL_ENUM(type, name) attrs.name = static_cast<int32_t>(op.name);
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  inline OpAttrs AttributesOf([[maybe_unused]] const Name& op) {        \
    rl_##name##_attrs attrs{};                                          \
    attributes return OpAttrs(attrs);                                   \
  }
#include <rullama/abi/ops.def>

#define RL_OPERAND(name, rule, role, optional) op.name = operands[next++];
#define RL_I32(name) op.name = attrs.name;
#define RL_I64(name) op.name = attrs.name;
#define RL_F32(name) op.name = attrs.name;
#define RL_ENUM(type, name) op.name = static_cast<attr_types::type>(attrs.name);
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc)                         \
  inline void ReadInto(std::span<const ValueId> operands, const OpAttrs& stored, Name& op) {    \
    size_t next = 0;                                                                            \
    [[maybe_unused]] const auto& attrs = *static_cast<const rl_##name##_attrs*>(stored.data()); \
    inputs attributes                                                                           \
  }
#include <rullama/abi/ops.def>

// The result of adding an op: its value, or its struct `Results` if it has several.
template <typename T>
inline constexpr size_t kResultCount = sizeof(typename T::Results) / sizeof(ValueId);
template <typename T>
using ResultOf = std::conditional_t<kResultCount<T> == 1, ValueId, typename T::Results>;

template <typename T>
concept OpStruct = requires(const T& op) {
  { T::kKind } -> std::convertible_to<OpKind>;
  OperandsOf(op);
  AttributesOf(op);
};

// The inverse: operands in the order of ops.def and stored attributes, by name.
template <OpStruct T>
T Read(std::span<const ValueId> operands, const OpAttrs& attrs) {
  T op;
  ReadInto(operands, attrs, op);
  return op;
}
template <OpStruct T>
T Read(const Op& op) {
  RL_CHECK(op.kind == T::kKind);
  return Read<T>(op.inputs, op.attrs);
}

// The row indices of a step that attention and penalties read, the same for all layers.
struct AttentionRows {
  ValueId q_pos, q_slot, kv_pos, kv_slot, past;
};

// `op` with the row indices of a step.
template <typename Op>
Op WithRows(Op op, const AttentionRows& rows) {
  op.q_pos = rows.q_pos;
  op.q_slot = rows.q_slot;
  op.kv_pos = rows.kv_pos;
  op.kv_slot = rows.kv_slot;
  op.past = rows.past;
  return op;
}

// x[rows, k] times weight[n, k] transposed: the usual linear layer.
inline MatMul Linear(ValueId x, ValueId weight) {
  return {.x = x, .weight = weight, .transpose_weight = 1};
}

// x with other inner dimensions, at most three.
inline Reshape ReshapeTo(ValueId x, std::initializer_list<int64_t> inner) {
  std::array<int64_t, 3> dims{};
  size_t count = 0;
  for (const int64_t dim : inner) {
    if (count < dims.size()) dims[count] = dim;
    ++count;
  }
  return {
      .x = x, .rank = static_cast<int32_t>(count) + 1, .d1 = dims[0], .d2 = dims[1], .d3 = dims[2]};
}

inline Binary Sum(ValueId a, ValueId b) { return {.a = a, .b = b, .fn = RL_BINARY_ADD}; }
inline Binary Product(ValueId a, ValueId b) { return {.a = a, .b = b, .fn = RL_BINARY_MUL}; }

}  // namespace rullama::ops

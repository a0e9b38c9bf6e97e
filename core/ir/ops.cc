#include "core/ir/ops.h"

#include <rullama/sdk/attributes.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

namespace rullama {
namespace {

// Tables of each op, all from ops.def. An op without attributes still needs a legal array, so the
// attribute arrays end with a sentinel that the spans leave out.
#define RL_OPERAND(name, rule, role, optional) {#name, RowRule::rule, OperandRole::role, optional},
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  constexpr OperandInfo k##Name##Operands[] = {operands};
#include <rullama/abi/ops.def>

#define RL_RESULT(y) #y,
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  constexpr std::string_view k##Name##Results[] = {results};
#include <rullama/abi/ops.def>

#define RL_I32(field) {#field, AttrType::kI32, "", offsetof(Struct, field), 0},
#define RL_I32_SINCE(minor, field) {#field, AttrType::kI32, "", offsetof(Struct, field), minor},
#define RL_I64(field) {#field, AttrType::kI64, "", offsetof(Struct, field), 0},
#define RL_F32(field) {#field, AttrType::kF32, "", offsetof(Struct, field), 0},
#define RL_ENUM(type, field) {#field, AttrType::kEnum, #type, offsetof(Struct, field), 0},
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc)            \
  struct Name##Attrs {                                                               \
    using Struct = rl_##name##_attrs;                                                \
    static constexpr AttrInfo kInfos[] = {attributes{"", AttrType::kI32, "", 0, 0}}; \
  };
#include <rullama/abi/ops.def>

#define RL_PRIMITIVE OpTrait::kPrimitive
#define RL_MOVES OpTrait::kMoves
#define RL_COMPOSITE OpTrait::kComposite
#define RL_EFFECT OpTrait::kEffect
constexpr OpInfo kOps[] = {
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc)              \
  {OpKind::k##Name,                                                                    \
   #name,                                                                              \
   k##Name##Operands,                                                                  \
   k##Name##Results,                                                                   \
   std::span<const AttrInfo>(Name##Attrs::kInfos, std::size(Name##Attrs::kInfos) - 1), \
   sizeof(rl_##name##_attrs),                                                          \
   kMinAttributeBytes<rl_##name##_attrs>,                                              \
   traits,                                                                             \
   doc},
#include <rullama/abi/ops.def>
};

// The row of kOps of each id, which passes look up many times for each node; null for ids of no op.
constexpr auto kRowOfId = [] {
  std::array<const OpInfo*, static_cast<size_t>(std::ranges::max(kOps, {}, &OpInfo::kind).kind) + 1>
      rows{};
  for (const OpInfo& op : kOps) rows[static_cast<size_t>(op.kind)] = &op;
  return rows;
}();

struct Enumerator {
  std::string_view enum_name;
  std::string_view name;
  int32_t value;
  uint16_t since = 0;  // the ABI minor that added it to an older enumeration, else 0
};

constexpr Enumerator kEnumerators[] = {
    {"rl_unary", "neg", RL_UNARY_NEG},
    {"rl_unary", "abs", RL_UNARY_ABS},
    {"rl_unary", "exp", RL_UNARY_EXP},
    {"rl_unary", "log", RL_UNARY_LOG},
    {"rl_unary", "sqrt", RL_UNARY_SQRT},
    {"rl_unary", "rsqrt", RL_UNARY_RSQRT},
    {"rl_unary", "tanh", RL_UNARY_TANH},
    {"rl_unary", "sigmoid", RL_UNARY_SIGMOID},
    {"rl_unary", "gelu_tanh", RL_UNARY_GELU_TANH},
    {"rl_unary", "silu", RL_UNARY_SILU},
    {"rl_unary", "square", RL_UNARY_SQUARE},
    {"rl_unary", "gelu_tanh_grad", RL_UNARY_GELU_TANH_GRAD, 3},
    {"rl_binary", "add", RL_BINARY_ADD},
    {"rl_binary", "sub", RL_BINARY_SUB},
    {"rl_binary", "mul", RL_BINARY_MUL},
    {"rl_binary", "div", RL_BINARY_DIV},
    {"rl_binary", "min", RL_BINARY_MIN},
    {"rl_binary", "max", RL_BINARY_MAX},
    {"rl_binary", "lt", RL_BINARY_LT},
    {"rl_binary", "le", RL_BINARY_LE},
    {"rl_binary", "eq", RL_BINARY_EQ},
    {"rl_reduce", "sum", RL_REDUCE_SUM},
    {"rl_reduce", "max", RL_REDUCE_MAX},
    {"rl_reduce", "mean", RL_REDUCE_MEAN},
    {"rl_mask", "causal", RL_MASK_CAUSAL},
    {"rl_mask", "canvas", RL_MASK_CANVAS},
#define RL_DTYPE(id, NAME, text, elements, bytes) {"rl_dtype", text, id},
#include <rullama/abi/dtypes.def>
};

}  // namespace

std::span<const OpInfo> AllOps() { return kOps; }

const OpInfo* FindOp(OpKind kind) {
  const auto id = static_cast<size_t>(kind);
  return id < kRowOfId.size() ? kRowOfId[id] : nullptr;
}

const OpInfo& InfoOf(OpKind kind) {
  const OpInfo* info = FindOp(kind);
  RL_CHECK(info != nullptr);
  return *info;
}

std::optional<OpKind> OpKindFromName(std::string_view name) {
  const auto* info = std::ranges::find(kOps, name, &OpInfo::name);
  if (info == std::end(kOps)) return std::nullopt;
  return info->kind;
}

std::string_view EnumeratorName(std::string_view enum_name, int32_t value) {
  for (const Enumerator& row : kEnumerators) {
    if (row.enum_name == enum_name && row.value == value) return row.name;
  }
  return {};
}

std::optional<int32_t> EnumeratorFromName(std::string_view enum_name, std::string_view name) {
  for (const Enumerator& row : kEnumerators) {
    if (row.enum_name == enum_name && row.name == name) return row.value;
  }
  return std::nullopt;
}

uint16_t RequiredAbiMinor(OpKind kind, const OpAttrs& attrs) {
  uint16_t minor = 0;
  for (const AttrInfo& attr : InfoOf(kind).attrs) {
    if (attr.type != AttrType::kI32 && attr.type != AttrType::kEnum) continue;
    int32_t value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(attrs.data()) + attr.offset, sizeof(value));
    if (value != 0) minor = std::max(minor, attr.since);
    for (const Enumerator& row : kEnumerators) {
      const bool is_value = row.enum_name == attr.enum_name && row.value == value;
      if (is_value) minor = std::max(minor, row.since);
    }
  }
  return minor;
}

OpAttrs::OpAttrs(OpKind kind) : size_(static_cast<uint32_t>(InfoOf(kind).attrs_size)) {
  std::memcpy(bytes_, &size_, sizeof(size_));
}

}  // namespace rullama

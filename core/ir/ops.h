// The op table (ops.def) as C++: kinds, attribute storage and descriptors. Constants only; safe
// from any thread.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/operands.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/base/check.h"

namespace rullama {

enum class OpKind : uint32_t {
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) k##Name = id,
#include <rullama/abi/ops.def>
};

// kMoves: a primitive that moves or selects values and computes nothing.
enum class OpTrait : uint8_t { kPrimitive, kMoves, kComposite, kEffect };

struct OperandInfo {
  std::string_view name;
  RowRule rows;
  OperandRole role;
  bool optional;
};

enum class AttrType : uint8_t { kI32, kI64, kF32, kEnum };

struct AttrInfo {
  std::string_view name;
  AttrType type;
  std::string_view enum_name;  // "rl_unary"; empty unless type is kEnum
  size_t offset;               // in the attribute struct
  uint16_t since;              // the ABI minor that appended it to an older op, else 0
};

struct OpInfo {
  OpKind kind;
  std::string_view name;
  std::span<const OperandInfo> operands;
  std::span<const std::string_view> results;
  std::span<const AttrInfo> attrs;
  size_t attrs_size;
  size_t min_attrs_size;  // in the oldest ABI version with the op
  OpTrait trait;
  std::string_view doc;
};

// The number of leading operands that an op writes. They are states, and result i of the op is the
// next version of operand i. 0 unless the op has OpTrait::kEffect.
inline size_t WrittenOperands(const OpInfo& info) {
  return info.trait == OpTrait::kEffect ? info.results.size() : 0;
}

std::span<const OpInfo> AllOps();
const OpInfo* FindOp(OpKind kind);  // null for a number that is not an op
const OpInfo& InfoOf(OpKind kind);  // of a valid kind
std::optional<OpKind> OpKindFromName(std::string_view name);
inline std::string_view NameOf(OpKind kind) { return InfoOf(kind).name; }

// Text names of the values of an ABI enumeration ("gelu_tanh" of rl_unary); empty / nothing if
// none.
std::string_view EnumeratorName(std::string_view enum_name, int32_t value);
std::optional<int32_t> EnumeratorFromName(std::string_view enum_name, std::string_view name);

class OpAttrs;

// The minor version of the plugin ABI from which on a plugin reads all of these attributes: 0, or
// that of an appended attribute that is not 0 or of an enumerator that was added later. An older
// plugin would not notice, and compute something else.
uint16_t RequiredAbiMinor(OpKind kind, const OpAttrs& attrs);

// The kind an attribute struct belongs to: AttrsKind<rl_rms_norm_attrs>::kKind.
template <typename Attrs>
struct AttrsKind;
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  template <>                                                             \
  struct AttrsKind<rl_##name##_attrs> {                                   \
    static constexpr OpKind kKind = OpKind::k##Name;                      \
  };
#include <rullama/abi/ops.def>

// The attributes of one op, stored as the ABI struct of its kind.
class OpAttrs {
 public:
  static constexpr size_t kCapacity = 48;  // the largest struct is 40 bytes; ops_test checks it

  // All attributes zero, struct_size set.
  explicit OpAttrs(OpKind kind);

  template <typename Attrs>
  explicit OpAttrs(Attrs attrs) : size_(sizeof(Attrs)) {
    static_assert(sizeof(Attrs) <= kCapacity && std::is_trivially_copyable_v<Attrs>);
    attrs.struct_size = sizeof(Attrs);
    std::memcpy(bytes_, &attrs, sizeof(Attrs));
  }

  [[nodiscard]] const void* data() const { return bytes_; }
  [[nodiscard]] void* data() { return bytes_; }
  [[nodiscard]] uint32_t size() const { return size_; }

 private:
  alignas(8) std::byte bytes_[kCapacity] = {};
  uint32_t size_ = 0;
};

}  // namespace rullama

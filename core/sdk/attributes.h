// The attributes of an op as the struct of these headers, from a host of any version of ABI 1: what
// its struct lacks is zero. Constants and pure functions; safe from any thread.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rullama {
namespace attributes_internal {

// The structs without the attributes that later versions appended.
// NOLINTBEGIN(readability-identifier-naming): they keep the names of ops.def.
#define RL_I32(name) int32_t name;
#define RL_I32_SINCE(minor, name)
#define RL_I64(name) int64_t name;
#define RL_F32(name) float name;
#define RL_ENUM(type, name) int32_t name;
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  struct Name {                                                           \
    uint32_t struct_size;                                                 \
    attributes                                                            \
  };
#include <rullama/abi/ops.def>
// NOLINTEND(readability-identifier-naming)

template <typename Attrs>
struct MinBytes;
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  template <>                                                             \
  struct MinBytes<rl_##name##_attrs> {                                    \
    static constexpr size_t kValue = sizeof(Name);                        \
  };
#include <rullama/abi/ops.def>

}  // namespace attributes_internal

// The bytes that a struct of attributes has in the oldest version of the ABI with the op.
template <typename Attrs>
inline constexpr size_t kMinAttributeBytes = attributes_internal::MinBytes<Attrs>::kValue;

// Copies a struct of `bytes` bytes, at least kMinAttributeBytes<Attrs>. struct_size stays that of
// the host.
template <typename Attrs>
Attrs ReadAttributes(const void* from, size_t bytes) {
  Attrs attrs{};
  std::memcpy(&attrs, from, std::min(bytes, sizeof(Attrs)));
  return attrs;
}

}  // namespace rullama

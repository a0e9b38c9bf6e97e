// The table of element types (dtypes.def) as C++. Constants only: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rullama {

enum class DType : uint16_t {
#define RL_DTYPE(id, NAME, text, elements, bytes) k##NAME = id,
#include <rullama/abi/dtypes.def>
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  uint32_t block_elements;  // values per block along the innermost dimension
  uint32_t block_bytes;     // bytes per block
};

inline constexpr DTypeInfo kDTypes[] = {
#define RL_DTYPE(id, NAME, text, elements, bytes) {DType::k##NAME, text, elements, bytes},
#include <rullama/abi/dtypes.def>
};

// The row of a type, or null for a number without one.
[[nodiscard]] constexpr const DTypeInfo* FindDType(uint32_t id) {
  for (const DTypeInfo& info : kDTypes) {
    if (static_cast<uint32_t>(info.dtype) == id) return &info;
  }
  return nullptr;
}

[[nodiscard]] constexpr const DTypeInfo& InfoOf(DType dtype) {
  return *FindDType(static_cast<uint32_t>(dtype));
}

[[nodiscard]] constexpr std::string_view NameOf(DType dtype) { return InfoOf(dtype).name; }

[[nodiscard]] constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

[[nodiscard]] constexpr bool IsBlockType(DType dtype) { return InfoOf(dtype).block_elements > 1; }

// Bytes of `elements` contiguous values; `elements` must be a multiple of the block length.
[[nodiscard]] constexpr uint64_t RowBytes(DType dtype, uint64_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace rullama

// Structs that begin with struct_size, as the caller's header declares them.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/base/status.h"

namespace rullama::c_api {

// No struct of this interface comes near this size; what claims more was not initialised.
inline constexpr size_t kMaxStructSize = 4096;

// Returns the number of bytes of a T that the caller and this library both know. Errors:
// usage.struct for a struct smaller than that of version 1.0, which has `least` bytes, or with
// members set that this library does not know.
Result<size_t> SharedBytes(const void* from, size_t size, size_t known, size_t least,
                           std::string_view name);

// A copy of *from with zero in the members that the caller's header does not have. Errors as
// SharedBytes(), usage.argument for NULL.
template <typename T>
Result<T> ReadStruct(const T* from, size_t least, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  if (from == nullptr) {
    return MakeError(ErrorKind::kUsage, "usage.argument", "the {} is NULL", name);
  }
  uint32_t size = 0;
  std::memcpy(&size, from, sizeof size);
  RL_ASSIGN_OR_RETURN(const size_t shared, SharedBytes(from, size, sizeof(T), least, name));
  T copy{};
  std::memcpy(&copy, from, shared);
  return copy;
}

}  // namespace rullama::c_api

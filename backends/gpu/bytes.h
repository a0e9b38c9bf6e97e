// Values one after another, as blobs of the host's cache have them. Pure functions.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace rullama::gpu {

inline void AppendBytes(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}
template <typename T>
void Append(const T& value, std::vector<std::byte>& out) {
  static_assert(std::is_trivially_copyable_v<T>);
  AppendBytes(std::as_bytes(std::span(&value, 1)), out);
}
// Takes a value off the front; false if there are too few bytes.
template <typename T>
bool Take(std::span<const std::byte>& from, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from.size() < sizeof(T)) return false;
  std::memcpy(&value, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return true;
}

}  // namespace rullama::gpu

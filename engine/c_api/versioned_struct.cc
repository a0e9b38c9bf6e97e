#include "engine/c_api/versioned_struct.h"

#include <span>

namespace rullama::c_api {

Result<size_t> SharedBytes(const void* from, size_t size, size_t known, size_t least,
                           std::string_view name) {
  if (size < least || size > kMaxStructSize) {
    return MakeError(ErrorKind::kUsage, "usage.struct",
                     "{}.struct_size is {}, expected at least {}; set it to sizeof({})", name, size,
                     least, name);
  }
  if (size <= known) return size;
  const std::span unknown(static_cast<const unsigned char*>(from) + known, size - known);
  if (std::ranges::any_of(unknown, [](unsigned char byte) { return byte != 0; })) {
    return MakeError(ErrorKind::kUsage, "usage.struct",
                     "{} has {} bytes, this library knows {}, and members after them are set; "
                     "leave them zero or use a newer librullama",
                     name, size, known);
  }
  return known;
}

}  // namespace rullama::c_api

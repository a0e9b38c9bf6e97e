#include "media/file_signature.h"

#include <fmt/format.h>

#include <cstdint>

namespace rullama::media_internal {

tl::unexpected<Error> UnknownFormat(std::string_view kind, std::string_view file,
                                    std::string_view expected) {
  constexpr size_t kShownBytes = 8;
  if (file.empty()) {
    return MakeError(ErrorKind::kUsage, "media.format", "the {} is an empty file, {}", kind,
                     expected);
  }
  const std::string_view begin = file.substr(0, kShownBytes);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(begin.data());
  return MakeError(ErrorKind::kUsage, "media.format",
                   "the {} begins with the bytes {:02x}, as no known format does, {}", kind,
                   fmt::join(bytes, bytes + begin.size(), " "), expected);
}

}  // namespace rullama::media_internal

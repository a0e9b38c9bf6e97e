// The bytes by which files of media are told apart.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/base/status.h"

namespace rullama::media_internal {

// The bytes with which files of a format begin.
struct FileSignature {
  std::string_view name;   // of the format
  size_t at;               // where `magic` begins
  std::string_view magic;  // the bytes themselves

  [[nodiscard]] bool IsOf(std::string_view file) const {
    return file.size() >= at && file.substr(at).starts_with(magic);
  }
};

// Error media.format for a file that has no known signature, or no bytes. `kind`: "picture";
// `expected`: the formats, and what to do.
tl::unexpected<Error> UnknownFormat(std::string_view kind, std::string_view file,
                                    std::string_view expected);

}  // namespace rullama::media_internal

// Base64 (RFC 4648, section 4).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace rullama::server {

std::string Base64(std::span<const std::byte> bytes);

// The bytes of such a text, in which there may be line ends, blanks and tabs, and whose padding may
// be missing; nothing for any other text.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace rullama::server

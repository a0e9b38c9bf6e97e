// Base64 (RFC 4648, section 4).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace rullama::server {

std::string Base64(std::span<const std::byte> bytes);

}  // namespace rullama::server

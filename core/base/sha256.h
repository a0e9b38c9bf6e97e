// SHA-256 (FIPS 180-4), for names of contents and for comparing secrets; not fast enough for files
// of weights. Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rullama {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::span<const std::byte> bytes);
Sha256Digest Sha256(std::string_view text);

// 64 lower-case hexadecimal digits.
std::string HexText(const Sha256Digest& digest);

}  // namespace rullama

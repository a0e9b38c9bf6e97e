#include "server/base64.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace rullama::server {

namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// The value of each character as a digit; -1 if it is not a digit.
constexpr std::array<int8_t, 256> kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  }
  return values;
}();

}  // namespace

std::string Base64(std::span<const std::byte> bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint32_t>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text.push_back(i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=');
    }
  }
  return text;
}

std::optional<std::string> FromBase64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t group = 0;
  int bits = 0;
  size_t digits = 0;
  size_t padding = 0;
  for (const char c : text) {
    if (c == '\r' || c == '\n' || c == ' ' || c == '\t') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int8_t digit = kValues[static_cast<unsigned char>(c)];
    if (digit < 0 || padding > 0) return std::nullopt;
    ++digits;
    group = group << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(group >> bits & 0xffU));
  }
  const bool padded = padding > 0 && padding <= 2 && (digits + padding) % 4 == 0;
  if (digits % 4 == 1 || (padding > 0 && !padded)) return std::nullopt;
  return bytes;
}

}  // namespace rullama::server

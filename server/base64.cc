#include "server/base64.h"

#include <cstdint>
#include <string_view>

namespace rullama::server {

std::string Base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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

}  // namespace rullama::server

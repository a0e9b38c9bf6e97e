#include "server/http/query.h"

#include <algorithm>

namespace rullama::server {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> WithoutEscapes(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = high < 0 ? -1 : HexDigit(text[i + 2]);
      if (low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    plain.push_back(c);
  }
  return plain;
}

std::string_view QueryOf(std::string_view target) {
  const size_t mark = std::min(target.find('?'), target.size());
  target.remove_prefix(std::min(mark + 1, target.size()));
  return target.substr(0, target.find('#'));
}

std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view member = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(member.size() + 1, query.size()));
    const size_t sign = std::min(member.find('='), member.size());
    if (member.substr(0, sign) != name) continue;
    return WithoutEscapes(member.substr(std::min(sign + 1, member.size())));
  }
  return std::nullopt;
}

}  // namespace rullama::server

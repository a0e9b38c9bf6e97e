#include "core/drawing/markup.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/printable.h"

namespace rullama::drawing {
namespace {

constexpr size_t kMaxTextBytes = 4096;  // of one name or message

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The byte at which character `index` of UTF-8 text begins.
size_t ByteOf(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (Continues(text[at])) continue;
    if (index == 0) break;
    --index;
  }
  return at;
}

size_t CharactersOf(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += Continues(c) ? 0 : 1;
  return count;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : Printable(text, kMaxTextBytes)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  return fmt::format("{:.3g}", value);
}

std::string Fitted(std::string_view text, size_t columns) {
  const size_t count = CharactersOf(text);
  if (count <= columns || columns < 3) return std::string(text);
  const size_t head = (columns - 1) / 2;
  const size_t tail = columns - 1 - head;
  return fmt::format("{}…{}", text.substr(0, ByteOf(text, head)),
                     text.substr(ByteOf(text, count - tail)));
}

}  // namespace rullama::drawing

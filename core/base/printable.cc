#include "core/base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "core/base/utf8.h"

namespace rullama {
namespace {

constexpr uint32_t kDelete = 0x7F;

struct Range {
  uint32_t first;
  uint32_t last;
};

// Characters of two or more bytes that act on the text around them instead of being shown.
constexpr Range kActing[] = {
    {0x80, 0x9F},      // control characters of ISO 8859
    {0x200E, 0x200F},  // marks of direction
    {0x2028, 0x202E},  // line and paragraph separator, embedding and override of direction
    {0x2066, 0x2069},  // isolation of direction
};

// The character that `sequence`, valid UTF-8 of two to four bytes, encodes.
uint32_t Decode(std::string_view sequence) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(sequence[i]));
  };
  uint32_t character = byte(0) & (0x7FU >> sequence.size());
  for (size_t i = 1; i < sequence.size(); ++i) character = character << 6 | (byte(i) & 0x3FU);
  return character;
}

bool Acts(uint32_t character) {
  for (const Range& range : kActing) {
    if (character >= range.first && character <= range.last) return true;
  }
  return false;
}

void AppendPrintable(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const auto first = static_cast<uint8_t>(text.front());
    if (first == '\n' || first == '\r' || first == '\t') {
      out += ' ';
    } else if (length == 0 || first < ' ' || first == kDelete) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", first);
    } else if (length > 1 && Acts(Decode(text.substr(0, length)))) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", Decode(text.substr(0, length)));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  if (text.size() <= limit) {
    AppendPrintable(text, out);
    return out;
  }
  // More of the beginning, which says what it is about; the end often says what to do. No character
  // is cut.
  size_t head = limit * 2 / 3;
  size_t tail = text.size() - (limit - head);
  for (int i = 0; i < 3 && head > 0 && IsContinuation(text[head]); ++i) --head;
  for (int i = 0; i < 3 && tail < text.size() && IsContinuation(text[tail]); ++i) ++tail;
  AppendPrintable(text.substr(0, head), out);
  fmt::format_to(std::back_inserter(out), " ...({} bytes left out)... ", tail - head);
  AppendPrintable(text.substr(tail), out);
  return out;
}

std::string QuotedText(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < ' ' || byte == kDelete) {
      fmt::format_to(std::back_inserter(quoted), "\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string ShownName(std::string_view text) {
  constexpr size_t kMaxShown = 200;
  return Printable(text, kMaxShown);
}

}  // namespace rullama

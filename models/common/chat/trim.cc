#include "models/common/chat/trim.h"

#include <array>

namespace rullama::chat {
namespace {

// Characters beyond ASCII that Python counts as white space.
constexpr auto kWideSpaces = std::to_array<std::string_view>(
    {"\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005",
     "\u2006", "\u2007", "\u2008", "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F",
     "\u3000"});

bool IsAsciiSpace(char c) { return (c >= '\t' && c <= '\r') || (c >= '\x1C' && c <= ' '); }

size_t LeadingSpace(std::string_view text) {
  if (text.empty()) return 0;
  if (IsAsciiSpace(text[0])) return 1;
  for (const std::string_view space : kWideSpaces) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

size_t TrailingSpace(std::string_view text) {
  if (text.empty()) return 0;
  if (IsAsciiSpace(text.back())) return 1;
  for (const std::string_view space : kWideSpaces) {
    if (text.ends_with(space)) return space.size();
  }
  return 0;
}

}  // namespace

std::string_view Trim(std::string_view text) {
  while (const size_t size = LeadingSpace(text)) text.remove_prefix(size);
  while (const size_t size = TrailingSpace(text)) text.remove_suffix(size);
  return text;
}

}  // namespace rullama::chat

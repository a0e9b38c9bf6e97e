#include "models/gemma4/chat/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/utf8.h"
#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {
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

template <typename Map>
std::string Mapped(std::string_view text, const Map& map) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), map);
  return result;
}

}  // namespace

std::string_view Trim(std::string_view text) {
  while (const size_t size = LeadingSpace(text)) text.remove_prefix(size);
  while (const size_t size = TrailingSpace(text)) text.remove_suffix(size);
  return text;
}

std::string StripThinking(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const size_t end = text.find(kChannelEnd);
    const std::string_view part = text.substr(0, end);
    kept += part.substr(0, part.find(kChannelBegin));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + kChannelEnd.size());
  }
  return std::string(Trim(kept));
}

std::string ToUpper(std::string_view text) {
  return Mapped(text, [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
}

std::string ToLower(std::string_view text) {
  return Mapped(text, [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
}

std::string FormatFloat(double value) {
  // Python switches to exponents below 1e-4 and from 1e16 on, wherever the digits end.
  constexpr double kSmallest = 1e-4;
  constexpr double kLargest = 1e16;
  const double magnitude = value < 0 ? -value : value;
  const bool plain = magnitude == 0 || (magnitude >= kSmallest && magnitude < kLargest);
  std::array<char, 512> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace rullama::gemma4

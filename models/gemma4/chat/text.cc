#include "models/gemma4/chat/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "models/common/chat/trim.h"
#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {
std::string StripThinking(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const size_t end = text.find(kChannelEnd);
    const std::string_view part = text.substr(0, end);
    kept += part.substr(0, part.find(kChannelBegin));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + kChannelEnd.size());
  }
  return std::string(chat::Trim(kept));
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

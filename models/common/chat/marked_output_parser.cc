#include "models/common/chat/marked_output_parser.h"

#include <algorithm>

namespace rullama::chat {

std::vector<OutputEvent> MarkedOutputParser::Feed(std::string_view text) {
  for (const char byte : text) Byte(byte);
  return TakeEvents();
}

std::vector<OutputEvent> MarkedOutputParser::FeedText(std::string_view text) {
  FlushPartial();
  for (const char byte : text) OrdinaryByte(byte);
  return TakeEvents();
}

bool MarkedOutputParser::Reads(std::string_view control) const {
  if (IsInCall()) return true;
  return std::ranges::find(markers_, control) != markers_.end() && IsActive(control);
}

void MarkedOutputParser::FlushPartial() {
  for (const char byte : std::exchange(partial_, {})) OrdinaryByte(byte);
}

void MarkedOutputParser::Byte(char byte) {
  if (partial_.empty() && byte != '<') return OrdinaryByte(byte);
  partial_ += byte;
  for (const std::string_view marker : markers_) {
    if (!marker.starts_with(partial_) || !IsActive(marker)) continue;
    if (marker.size() == partial_.size()) {
      partial_.clear();
      Marker(marker);
    }
    return;
  }
  // Not a marker: its first byte is text, the rest may begin one. Markers are short, so this is
  // constant work per byte.
  const std::string rest = std::exchange(partial_, {});
  OrdinaryByte(rest[0]);
  for (const char later : rest.substr(1)) Byte(later);
}

}  // namespace rullama::chat

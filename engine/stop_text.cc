#include "engine/stop_text.h"

#include <algorithm>
#include <utility>

namespace rullama {

std::string StopText::Feed(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  size_t first = std::string::npos;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t at = held_.find(stops_[i]);
    if (at >= first) continue;
    first = at;
    found_ = i;
  }
  if (found_) {
    return std::exchange(held_, {}).substr(0, first);
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, held_.size());
    while (length > keep && !std::string_view(held_).ends_with(stop.substr(0, length))) --length;
    keep = std::max(keep, length);
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopText::Finish() { return found_ ? std::string() : std::exchange(held_, {}); }

}  // namespace rullama

// Finds stop strings in text that arrives in pieces, and never passes on a part of one. Thread
// safety: one thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rullama {

class StopText {
 public:
  explicit StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The text that is now known to be before any stop string.
  std::string Feed(std::string_view piece);
  // Returns the text that was held back, when no more text comes.
  std::string Finish();
  // The stop string that was found, or null; the text from it on is gone. Of several that begin at
  // the same place it is the first in the list.
  [[nodiscard]] const std::string* found() const { return found_ ? &stops_[*found_] : nullptr; }

 private:
  std::vector<std::string> stops_;
  std::string held_;             // may be the beginning of a stop string
  std::optional<size_t> found_;  // its index
};

}  // namespace rullama

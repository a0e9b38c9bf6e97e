// Finds stop strings in text that arrives in pieces, and never passes on a part of one. Thread
// safety: one thread at a time.
#pragma once

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
  // Whether a stop string was found; the text from it on is gone.
  [[nodiscard]] bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // may be the beginning of a stop string
  bool found_ = false;
};

}  // namespace rullama

// The parser of models that write neither thoughts nor calls of tools: all text is content.
// Thread safety: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/common/chat.h"

namespace rullama::chat {

class PlainOutputParser final : public OutputParser {
 public:
  std::vector<OutputEvent> Feed(std::string_view text) override { return FeedText(text); }
  std::vector<OutputEvent> FeedText(std::string_view text) override {
    std::vector<OutputEvent> events;
    if (!text.empty()) events.emplace_back().text = text;
    return events;
  }
  [[nodiscard]] bool Reads(std::string_view /*control*/) const override { return false; }
  std::vector<OutputEvent> Finish() override { return {}; }
};

}  // namespace rullama::chat

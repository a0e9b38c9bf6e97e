#include "models/common/chat/prompt.h"

namespace rullama::chat {

std::string ChatPrompt::ToString() const {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

void PromptWriter::Append(std::string_view text, bool is_template) {
  if (text.empty()) return;
  auto& segments = prompt_.segments;
  if (segments.empty() || segments.back().is_template != is_template ||
      segments.back().is_trained != trained_ || segments.back().ends_answer) {
    segments.push_back({.text = {}, .is_template = is_template, .is_trained = trained_});
  }
  segments.back().text += text;
}

}  // namespace rullama::chat

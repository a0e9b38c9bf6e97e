#include "models/gemma4/chat/prompt.h"

#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {

std::string ChatPrompt::ToString() const {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

void PromptWriter::QuotedUser(std::string_view text) {
  Template(kStringDelimiter);
  User(text);
  Template(kStringDelimiter);
}

void PromptWriter::Append(std::string_view text, bool is_template) {
  if (text.empty()) return;
  auto& segments = prompt_.segments;
  if (segments.empty() || segments.back().is_template != is_template ||
      segments.back().is_trained != trained_) {
    segments.push_back({.text = {}, .is_template = is_template, .is_trained = trained_});
  }
  segments.back().text += text;
}

}  // namespace rullama::gemma4

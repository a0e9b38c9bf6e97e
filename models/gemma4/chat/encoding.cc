#include "models/gemma4/chat/encoding.h"

#include <string>

#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {

Status CheckChatMarkers(const Tokenizer& tokenizer) {
  std::string missing;
  for (const std::string_view marker : {kTurnBegin, kTurnEnd}) {
    if (tokenizer.FindToken(marker)) continue;
    missing += missing.empty() ? "" : ", ";
    missing += marker;
  }
  if (missing.empty()) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "chat.markers_missing",
                   "the vocabulary lacks {}; this model can complete raw text but not chat, use an "
                   "instruction-tuned Gemma 4 file",
                   missing);
}

Result<std::vector<TokenId>> EncodePrompt(const Tokenizer& tokenizer, const ChatPrompt& prompt,
                                          const std::stop_token& stop) {
  RL_RETURN_IF_ERROR(CheckChatMarkers(tokenizer));
  std::vector<TextSegment> segments;
  segments.reserve(prompt.segments.size());
  for (const PromptSegment& segment : prompt.segments) {
    segments.push_back({segment.text, segment.is_template});
  }
  EncodeOptions options;
  options.add_bos = true;
  options.stop = stop;
  return tokenizer.EncodeSegments(segments, options);
}

std::vector<int64_t> TurnBorders(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  const auto turn_end = tokenizer.FindToken(kTurnEnd);
  const auto line_break = tokenizer.FindToken("\n");
  std::vector<int64_t> borders;
  if (!turn_end || !line_break) return borders;
  for (size_t i = 1; i < ids.size(); ++i) {
    if (ids[i - 1] == *turn_end && ids[i] == *line_break) {
      borders.push_back(static_cast<int64_t>(i) + 1);
    }
  }
  return borders;
}

}  // namespace rullama::gemma4

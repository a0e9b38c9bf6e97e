#include "models/common/chat/encoding.h"

#include <optional>
#include <string>
#include <string_view>

namespace rullama::chat {

Status CheckMarkers(const Tokenizer& tokenizer, const TurnMarkers& markers) {
  std::string missing;
  for (const std::string_view marker : {markers.begin, markers.end}) {
    if (tokenizer.FindToken(marker)) continue;
    missing += missing.empty() ? "" : ", ";
    missing += marker;
  }
  if (missing.empty()) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "chat.markers_missing",
                   "the vocabulary lacks {}; this model can complete raw text but not chat, use an "
                   "instruction-tuned {} file",
                   missing, markers.family);
}

Result<std::vector<TokenId>> EncodePrompt(const Tokenizer& tokenizer, const TurnMarkers& markers,
                                          const ChatPrompt& prompt, size_t max_tokens) {
  RL_RETURN_IF_ERROR(CheckMarkers(tokenizer, markers));
  std::vector<TextSegment> segments;
  segments.reserve(prompt.segments.size());
  for (const PromptSegment& segment : prompt.segments) {
    segments.push_back({segment.text, segment.is_template});
  }
  EncodeOptions options;
  options.add_bos = true;
  options.max_tokens = max_tokens;
  return tokenizer.EncodeSegments(segments, options);
}

Result<EncodedExample> EncodeExample(const Tokenizer& tokenizer, const TurnMarkers& markers,
                                     const ChatPrompt& prompt) {
  RL_RETURN_IF_ERROR(CheckMarkers(tokenizer, markers));
  EncodedExample example;
  const std::vector<PromptSegment>& all = prompt.segments;
  for (size_t begin = 0; begin < all.size();) {
    std::vector<TextSegment> stretch;
    size_t end = begin;
    bool ends_answer = false;
    for (; end < all.size() && !ends_answer && all[end].is_trained == all[begin].is_trained;
         ++end) {
      stretch.push_back({all[end].text, all[end].is_template});
      ends_answer = all[end].ends_answer;
    }
    // Exactly one BOS.
    RL_ASSIGN_OR_RETURN(const auto ids, tokenizer.EncodeSegments(stretch, {.add_bos = begin == 0}));
    example.ids.insert(example.ids.end(), ids.begin(), ids.end());
    example.trained.resize(example.ids.size(), all[begin].is_trained ? 1 : 0);
    if (ends_answer) example.ends.push_back(example.ids.size() - 1);
    begin = end;
  }
  return example;
}

namespace {

// Where the last parts of a turn begin.
struct Passages {
  bool in_header = true;              // its first line names who speaks
  std::optional<int64_t> first = {};  // after the first empty line
  std::optional<int64_t> last = {};   // after the last empty line
  std::optional<int64_t> line = {};   // after a line break that follows `last`

  void Take(size_t breaks, int64_t after) {
    if (in_header) {
      in_header = false;
    } else if (breaks == 1) {
      line = after;
    } else {
      if (!first) first = after;
      last = after;
      line.reset();
    }
  }
  void AddTo(std::vector<int64_t>& borders, bool has_system) const {
    if (has_system && first != last) borders.push_back(*first);
    if (last) borders.push_back(*last);
    if (line) borders.push_back(*line);
  }
};

}  // namespace

PromptBorders BordersOf(const Tokenizer& tokenizer, const TurnMarkers& markers,
                        std::span<const TokenId> ids) {
  const auto turn_end = tokenizer.FindToken(markers.end);
  const auto line_break = tokenizer.FindToken("\n");
  PromptBorders borders;
  if (!turn_end || !line_break) return borders;
  const auto result_end =
      markers.result_end.empty() ? std::nullopt : tokenizer.FindToken(markers.result_end);
  const auto breaks_of = [&](TokenId id) -> size_t {
    if (!tokenizer.Contains(id)) return 0;  // of a picture
    const std::string_view text = tokenizer.TokenText(id);
    return text.find_first_not_of('\n') == std::string_view::npos ? text.size() : 0;
  };
  Passages passages;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto after = static_cast<int64_t>(i) + 1;
    const bool ends_turn = i > 0 && ids[i - 1] == *turn_end && ids[i] == *line_break;
    if (ends_turn || ids[i] == result_end) {
      const bool has_system = markers.system_in_first_turn && borders.turns.empty();
      borders.turns.push_back(after);
      if (ends_turn) passages.AddTo(borders.passages, has_system);
      passages = {.in_header = ends_turn};
    } else if (const size_t breaks = breaks_of(ids[i]); breaks > 0) {
      passages.Take(breaks, after);
    }
  }
  return borders;
}

}  // namespace rullama::chat

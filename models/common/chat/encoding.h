// Rendered conversations as tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"
#include "models/common/chat.h"
#include "models/common/chat/prompt.h"

namespace rullama::chat {

// The markers around a turn, and the family they belong to.
struct TurnMarkers {
  std::string_view begin;   // "<start_of_turn>"
  std::string_view end;     // "<end_of_turn>"
  std::string_view family;  // "Gemma 3"
  // The end of a tool's result inside the model's turn; empty: the family has none.
  std::string_view result_end = {};
  // The first turn, which is the user's, begins with the system's text and an empty line.
  bool system_in_first_turn = false;
};

// Whether the vocabulary has the markers without which no conversation can be held. Error
// chat.markers_missing (kModelFile) names them; raw completion still works with such a file.
Status CheckMarkers(const Tokenizer& tokenizer, const TurnMarkers& markers);

// Markers are recognised in template text only. Exactly one BOS. `max_tokens`: as in EncodeOptions.
// Errors: chat.markers_missing and those of Tokenizer::Encode.
Result<std::vector<TokenId>> EncodePrompt(const Tokenizer& tokenizer, const TurnMarkers& markers,
                                          const ChatPrompt& prompt, size_t max_tokens = kAnyTokens);

// A conversation to learn from. Text that is learnt and text that is not are encoded apart, as they
// are when a model continues a prompt. Errors: those of EncodePrompt.
Result<EncodedExample> EncodeExample(const Tokenizer& tokenizer, const TurnMarkers& markers,
                                     const ChatPrompt& prompt);

// Text of users holds no markers, so the ends of turns are the template's own.
PromptBorders BordersOf(const Tokenizer& tokenizer, const TurnMarkers& markers,
                        std::span<const TokenId> ids);

}  // namespace rullama::chat

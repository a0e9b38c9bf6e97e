// Rendered conversations as tokens.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"
#include "models/gemma4/chat/prompt.h"

namespace rullama::gemma4 {

// Whether the vocabulary has the markers without which no conversation can be held. Error
// chat.markers_missing (kModelFile) names them; raw completion still works with such a file.
Status CheckChatMarkers(const Tokenizer& tokenizer);

// Markers are recognised in template text only. Exactly one BOS. Errors: chat.markers_missing and
// those of Tokenizer::Encode.
Result<std::vector<TokenId>> EncodePrompt(const Tokenizer& tokenizer, const ChatPrompt& prompt,
                                          const std::stop_token& stop = {});

// The positions behind turns, ascending: behind each `<turn|>` and the line break after it. What
// users write holds no markers, so these are the template's own.
std::vector<int64_t> TurnBorders(const Tokenizer& tokenizer, std::span<const TokenId> ids);

}  // namespace rullama::gemma4

// The inside of a tool call: call:NAME{key:value,...}.
#pragma once

#include <optional>
#include <string_view>

#include "models/common/chat.h"

namespace rullama::gemma4 {

// Values are <|"|>text<|"|> (taken verbatim), JSON strings, numbers, true, false, null, objects
// with bare or quoted keys, and lists; white space between them is ignored. Nothing if `text` is
// anything else, nests deeper than kMaxJsonDepth or is not UTF-8.
std::optional<ParsedCall> ParseToolCall(std::string_view text);

}  // namespace rullama::gemma4

// The turns of Gemma 4 in conversations that are rendered as tokens
// (models/common/chat/encoding.h).
#pragma once

#include "models/common/chat/encoding.h"
#include "models/gemma4/chat/markers.h"

namespace rullama::gemma4 {

inline constexpr chat::TurnMarkers kTurnMarkers = {
    .begin = kTurnBegin, .end = kTurnEnd, .family = "Gemma 4", .result_end = kToolResponseEnd};

}  // namespace rullama::gemma4

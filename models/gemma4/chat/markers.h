// The marker tokens of Gemma 4's conversation format.
#pragma once

#include <string_view>

#include "core/base/media_kind.h"
#include "models/common/chat.h"

namespace rullama::gemma4 {

inline constexpr std::string_view kBos = "<bos>";
inline constexpr std::string_view kTurnBegin = "<|turn>";
inline constexpr std::string_view kTurnEnd = "<turn|>";
inline constexpr std::string_view kThink = "<|think|>";
inline constexpr std::string_view kChannelBegin = "<|channel>";
inline constexpr std::string_view kChannelEnd = "<channel|>";
inline constexpr std::string_view kToolBegin = "<|tool>";
inline constexpr std::string_view kToolEnd = "<tool|>";
inline constexpr std::string_view kToolCallBegin = "<|tool_call>";
inline constexpr std::string_view kToolCallEnd = "<tool_call|>";
inline constexpr std::string_view kToolResponseBegin = "<|tool_response>";
inline constexpr std::string_view kToolResponseEnd = "<tool_response|>";
inline constexpr std::string_view kStringDelimiter = "<|\"|>";
inline constexpr std::string_view kImageBegin = "<|image>";
inline constexpr std::string_view kImage = "<|image|>";
inline constexpr std::string_view kImageEnd = "<image|>";
inline constexpr std::string_view kAudioBegin = "<|audio>";
inline constexpr std::string_view kAudio = "<|audio|>";
inline constexpr std::string_view kAudioEnd = "<audio|>";
inline constexpr std::string_view kVideo = "<|video|>";

// The markers around soft tokens of a kind.
constexpr MediaMarkers MarkersOf(MediaKind kind) {
  if (kind == MediaKind::kPicture) return {kImageBegin, kImage, kImageEnd};
  return {kAudioBegin, kAudio, kAudioEnd};
}

// The name of the channel that carries the model's thoughts.
inline constexpr std::string_view kThoughtChannel = "thought";

}  // namespace rullama::gemma4

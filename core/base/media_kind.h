// The kinds of media that a model takes besides text. Part of the public interface.
#pragma once

#include <cstdint>
#include <string_view>

namespace rullama {

enum class MediaKind : uint8_t { kPicture, kSound };

constexpr std::string_view NameOf(MediaKind kind) {
  return kind == MediaKind::kPicture ? "picture" : "sound";
}

}  // namespace rullama

// Names of the inputs that a graph which reads pictures and sounds has in addition to those of
// every language model (input_names). Rows of media have token id 0.
#pragma once

#include <string_view>

namespace rullama::media_names {

// f32[T, width]: the soft token of each row of a picture or sound, 0 for other rows.
inline constexpr std::string_view kSoft = "media.soft";
// f32[T, 1]: 0 for rows of pictures and sounds, 1 for other rows.
inline constexpr std::string_view kKeep = "media.keep";
// i32[T]: what the history of the samplers keeps of each row: its token, -1 for rows of pictures
// and sounds. Only graphs of a batch have it.
inline constexpr std::string_view kHistory = "media.history";
// i32[T]: the last position that each row sees, on the layers that read it: the last row of its
// picture, the row itself for all others. Only models that see whole pictures have it.
inline constexpr std::string_view kLastSeen = "media.last_seen";

}  // namespace rullama::media_names

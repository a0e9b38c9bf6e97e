// MP3, decoded by libmpg123. libsndfile has it decode MP3 too, but lets it write to the standard
// error of the process and does not tell that a file ends inside a frame. Internal to media. Pure
// functions.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "media/sound.h"

namespace rullama::media_internal {

// Whether a text begins as a frame of MPEG audio, layer III.
[[nodiscard]] bool IsMp3Frame(std::string_view text);

// The samples of a whole file, at kSoundRate. Errors: those of DecodeSound but media.format and
// media.too_short.
Result<std::vector<float>> DecodeMp3(std::string_view file, const SoundLimits& limits);

}  // namespace rullama::media_internal

// Ogg files as far as libsndfile does not look itself. Internal to media.
#pragma once

#include <string_view>

#include "core/base/status.h"

namespace rullama::media_internal {

// Whether the headers of an Ogg file of Vorbis are whole and valid; those of other codecs are not
// looked at. libsndfile 1.2 does not give back what it has allocated for Vorbis if they are not.
// Error media.damaged. Thread safety: a pure function.
[[nodiscard]] Status CheckOggHeaders(std::string_view file);

}  // namespace rullama::media_internal

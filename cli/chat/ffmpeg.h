// The ffmpeg that the user has installed, for what this program does not decode itself.
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace rullama::cli {

// Runs ffmpeg and gives its stdout, at most `most` bytes. It reads local files only and asks
// nothing. Errors: media.ffmpeg if it cannot be started, media.damaged with its own words if it
// fails, media.too_large.
Result<std::string> RunFfmpeg(const std::vector<std::string>& arguments, size_t most);

}  // namespace rullama::cli

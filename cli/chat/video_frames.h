// The frames of a video that a model looks at. Thread safety: any thread; blocks while ffmpeg runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama::cli {

struct VideoFrame {
  double second = 0;  // since the first frame of the video
  std::string png;    // the picture, a whole file
};

// 32 frames of a video file at even distances, the first one first, or all of a shorter video.
// Errors: io.open; those of RunFfmpeg.
Result<std::vector<VideoFrame>> ReadVideoFrames(const std::string& path);

// The times of the packets in the output of ffmpeg's muxer framecrc, in seconds since the first
// one. Other lines are skipped. Pure function.
std::vector<double> TimesOfPackets(std::string_view text);

// The frames that the model sees of a video with `frames` frames. Pure function.
std::vector<int64_t> SampledFrames(int64_t frames);

// The files that a stream of PNG files consists of; what follows the last whole one is left out.
// Pure function.
std::vector<std::string> SplitPngs(std::string_view stream);

}  // namespace rullama::cli

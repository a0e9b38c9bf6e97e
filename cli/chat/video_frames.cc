#include "cli/chat/video_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <utility>

#include "cli/chat/ffmpeg.h"
#include "core/base/mmap_file.h"

namespace rullama::cli {
namespace {

constexpr int64_t kSampledFrames = 32;
constexpr size_t kMaxListBytes = size_t{256} << 20U;
constexpr size_t kMaxFrameBytes = size_t{1} << 30U;

// The number that `text` begins with, after blanks; taken off it.
std::optional<int64_t> TakeNumber(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool TakeText(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

// The seconds of a tick, of a line such as "#tb 0: 1/15360"; nothing for another line.
std::optional<double> SecondsOfTick(std::string_view line) {
  if (!TakeText(line, "#tb 0:")) return std::nullopt;
  const auto above = TakeNumber(line);
  if (!above || !TakeText(line, "/")) return std::nullopt;
  const auto below = TakeNumber(line);
  if (!below || *below <= 0) return std::nullopt;
  return static_cast<double>(*above) / static_cast<double>(*below);
}

// The time of a packet, of a line "STREAM, DECODING TIME, ...". Decoding times are in order and
// have the distances of the frames, and every container has them.
std::optional<int64_t> TimeOfPacket(std::string_view line) {
  if (!TakeNumber(line) || !TakeText(line, ",")) return std::nullopt;
  return TakeNumber(line);
}

// The input and its first stream of pictures. "file:" keeps ffmpeg from reading a name as an
// address.
std::vector<std::string> InputOf(const std::string& path) {
  return {"-protocol_whitelist", "file,pipe", "-i", "file:" + path, "-map", "0:v:0"};
}

// The arguments that make ffmpeg write these frames as PNG files one after another. They get times
// of their own, at which none is left out or repeated.
std::vector<std::string> FrameArguments(const std::string& path,
                                        const std::vector<int64_t>& frames) {
  std::string chosen;
  for (const int64_t frame : frames) {
    chosen += fmt::format("{}eq(n,{})", chosen.empty() ? "" : "+", frame);
  }
  std::vector<std::string> arguments = InputOf(path);
  for (const std::string& word :
       {std::string("-vf"), fmt::format("select='{}',setpts=N/(25*TB)", chosen), std::string("-r"),
        std::string("25"), std::string("-frames:v"), fmt::format("{}", frames.size())}) {
    arguments.push_back(word);
  }
  for (const char* word : {"-c:v", "png", "-pix_fmt", "rgb24", "-compression_level", "1", "-f",
                           "image2pipe", "pipe:1"}) {
    arguments.emplace_back(word);
  }
  return arguments;
}

}  // namespace

std::vector<double> TimesOfPackets(std::string_view text) {
  std::vector<double> times;
  double tick = 0;
  int64_t first = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const auto seconds = SecondsOfTick(line)) tick = *seconds;
    const auto time = TimeOfPacket(line);
    if (!time) continue;
    if (times.empty()) first = *time;
    times.push_back(
        std::max(0.0, (static_cast<double>(*time) - static_cast<double>(first)) * tick));
  }
  return times;
}

std::vector<int64_t> SampledFrames(int64_t frames) {
  std::vector<int64_t> sampled;
  const int64_t count = std::min(frames, kSampledFrames);
  sampled.reserve(count);
  for (int64_t i = 0; i < count; ++i) sampled.push_back(i * frames / count);
  return sampled;
}

std::vector<std::string> SplitPngs(std::string_view stream) {
  constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
  constexpr size_t kChunkFrame = 12;  // length, type and checksum of a chunk
  std::vector<std::string> files;
  size_t begin = 0;
  size_t at = kSignature.size();
  while (stream.substr(begin).starts_with(kSignature) && at + kChunkFrame <= stream.size()) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8U | static_cast<uint8_t>(stream[at + i]);
    const bool last = stream.substr(at + 4).starts_with("IEND");
    at += kChunkFrame + length;
    if (at > stream.size()) break;
    if (!last) continue;
    files.emplace_back(stream.substr(begin, at - begin));
    begin = at;
    at += kSignature.size();
  }
  return files;
}

Result<std::vector<VideoFrame>> ReadVideoFrames(const std::string& path) {
  RL_RETURN_IF_ERROR(MmapFile::Open(path));
  std::vector<std::string> list = InputOf(path);
  for (const char* word : {"-c", "copy", "-f", "framecrc", "pipe:1"}) list.emplace_back(word);
  RL_ASSIGN_OR_RETURN(const std::string packets, RunFfmpeg(list, kMaxListBytes));
  const std::vector<double> times = TimesOfPackets(packets);
  const std::vector<int64_t> frames = SampledFrames(std::ssize(times));
  if (frames.empty()) {
    return MakeError(ErrorKind::kUsage, "media.damaged", "the video has no frames");
  }
  RL_ASSIGN_OR_RETURN(const std::string stream,
                      RunFfmpeg(FrameArguments(path, frames), kMaxFrameBytes));
  std::vector<std::string> pictures = SplitPngs(stream);
  if (pictures.size() != frames.size()) {
    return MakeError(ErrorKind::kUsage, "media.damaged",
                     "ffmpeg decodes {} of {} frames of the video", pictures.size(), frames.size());
  }
  std::vector<VideoFrame> result;
  result.reserve(frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    result.push_back({times[static_cast<size_t>(frames[i])], std::move(pictures[i])});
  }
  return result;
}

}  // namespace rullama::cli

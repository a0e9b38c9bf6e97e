// Sounds in builds without decoders (RULLAMA_MEDIA_DECODERS): a caller with its own decoder, such
// as a web page, hands over its samples as a WAV file of one channel of 32-bit floats at
// kSoundRate.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>

#include "media/sound.h"

namespace rullama {
namespace {

constexpr size_t kRiffHeader = 12;
constexpr size_t kChunkHeader = 8;  // a name and a size

// What the chunk "fmt " begins with.
struct WavFormat {
  uint16_t format = 0;
  uint16_t channels = 0;
  uint32_t rate = 0;
  uint32_t bytes_per_second = 0;
  uint16_t frame_bytes = 0;
  uint16_t bits = 0;
};
constexpr WavFormat kExpectedFormat = {.format = 3,  // IEEE float
                                       .channels = 1,
                                       .rate = kSoundRate,
                                       .bytes_per_second = kSoundRate * 4,
                                       .frame_bytes = 4,
                                       .bits = 32};

tl::unexpected<Error> WrongFormat() {
  return MakeError(ErrorKind::kUsage, "media.format",
                   "the sound is not a WAV file of one channel of 32-bit floats at {} Hz, which is "
                   "all that this build reads",
                   kSoundRate);
}

// The contents of the first chunk of this name; nothing if there is none. A chunk may claim more
// than the file has.
struct Chunk {
  std::string_view bytes;
  bool whole = true;
};
std::optional<Chunk> FindChunk(std::string_view file, std::string_view name) {
  for (size_t at = kRiffHeader; file.size() - std::min(at, file.size()) >= kChunkHeader;) {
    uint32_t size = 0;
    std::memcpy(&size, file.data() + at + name.size(), sizeof(size));
    const std::string_view rest = file.substr(at + kChunkHeader);
    if (file.substr(at).starts_with(name)) return Chunk{rest.substr(0, size), size <= rest.size()};
    if (size > rest.size()) return std::nullopt;
    at += kChunkHeader + size + size % 2;
  }
  return std::nullopt;
}

// The chunk of samples of a file of the expected format. Errors: media.format, media.damaged.
Result<std::string_view> SampleBytes(std::string_view file) {
  const auto format = FindChunk(file, "fmt ");
  if (!file.starts_with("RIFF") || !format || format->bytes.size() < sizeof(WavFormat) ||
      std::memcmp(format->bytes.data(), &kExpectedFormat, sizeof(WavFormat)) != 0) {
    return WrongFormat();
  }
  const auto data = FindChunk(file, "data");
  if (!data || !data->whole || data->bytes.size() % sizeof(float) != 0) {
    return MakeError(ErrorKind::kUsage, "media.damaged",
                     "the WAV file is damaged: it ends inside its samples");
  }
  return data->bytes;
}

Status CheckSamples(const std::vector<float>& samples, const SoundLimits& limits) {
  if (samples.size() / kSoundRate > limits.max_seconds) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the sound lasts {} seconds, expected at most {}; use a shorter one",
                     samples.size() / kSoundRate, limits.max_seconds);
  }
  if (samples.size() < kMinSoundSamples) {
    return MakeError(ErrorKind::kUsage, "media.too_short",
                     "the sound has {} samples, expected at least {}; use a longer one",
                     samples.size(), kMinSoundSamples);
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    if (std::isfinite(samples[i])) continue;
    return MakeError(ErrorKind::kUsage, "media.samples",
                     "sample {} of the sound is not a finite number", i);
  }
  return OkStatus();
}

std::string_view Text(std::span<const std::byte> file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

}  // namespace

Result<std::vector<float>> DecodeSound(std::span<const std::byte> file, const SoundLimits& limits) {
  RL_ASSIGN_OR_RETURN(const std::string_view bytes, SampleBytes(Text(file)));
  try {
    std::vector<float> samples(bytes.size() / sizeof(float));
    std::memcpy(samples.data(), bytes.data(), bytes.size());
    RL_RETURN_IF_ERROR(CheckSamples(samples, limits));
    return samples;
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorKind::kOutOfMemory, "media.memory",
                     "there is not enough memory for a sound of {} bytes; use a shorter one",
                     file.size());
  }
}

std::optional<uint64_t> SoundSamplesOfHeader(std::span<const std::byte> file) {
  const auto bytes = SampleBytes(Text(file));
  if (!bytes) return std::nullopt;
  return bytes->size() / sizeof(float);
}

}  // namespace rullama

#include "media/sound.h"

#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/printable.h"
#include "media/file_signature.h"
#include "media/resampler.h"

namespace rullama {
namespace {

using media_internal::FileSignature;
using media_internal::Resampler;
using namespace std::string_view_literals;

// Formats that are not decoded are known to be refused by name.
struct SoundFormat {
  FileSignature signature;
  bool decoded;
};
constexpr SoundFormat kSoundFormats[] = {
    {{"WAV", 8, "WAVE"sv}, true},
    {{"FLAC", 0, "fLaC"sv}, true},
    {{"Ogg", 0, "OggS"sv}, true},
    {{"MP3", 0, "ID3"sv}, true},
    {{"M4A or MP4", 4, "ftyp"sv}, false},
    {{"AIFF", 0, "FORM"sv}, false},
    {{"WebM or Matroska", 0, "\x1A\x45\xDF\xA3"sv}, false},
    {{"AMR", 0, "#!AMR"sv}, false},
    {{"WMA", 0, "\x30\x26\xB2\x75"sv}, false},
    {{"Core Audio", 0, "caff"sv}, false},
    {{"MIDI", 0, "MThd"sv}, false},
    {{"AU", 0, ".snd"sv}, false},
};

// A frame of MPEG audio, layer III: eleven bits of synchronisation, then a version and the layer.
// AAC in ADTS frames begins alike, with other bits of the layer.
bool IsMp3Frame(std::string_view text) {
  if (text.size() < 2 || text[0] != '\xFF') return false;
  const auto second = static_cast<unsigned char>(text[1]);
  constexpr unsigned kLayerMask = 0x06;
  constexpr unsigned kLayer3 = 0x02;
  constexpr unsigned kSync = 0xE0;
  return (second & kSync) == kSync && (second & kLayerMask) == kLayer3;
}

Status CheckFormat(std::string_view text) {
  constexpr std::string_view kExpected = "expected WAV, FLAC, Ogg or MP3; convert the sound";
  if (IsMp3Frame(text)) return OkStatus();
  for (const SoundFormat& format : kSoundFormats) {
    if (!format.signature.IsOf(text)) continue;
    if (format.decoded) return OkStatus();
    return MakeError(ErrorKind::kUsage, "media.format", "the sound is a file of {}, {}",
                     format.signature.name, kExpected);
  }
  return media_internal::UnknownFormat("sound", text, kExpected);
}

tl::unexpected<Error> DamagedSound(std::string_view why) {
  return MakeError(ErrorKind::kUsage, "media.damaged",
                   "the sound cannot be decoded ({}); the file is incomplete or damaged",
                   ShownName(why));
}

// A file in memory, read by libsndfile.
struct SoundBytes {
  std::string_view bytes;
  sf_count_t at = 0;
};

sf_count_t SizeOf(void* user) {
  return static_cast<sf_count_t>(static_cast<SoundBytes*>(user)->bytes.size());
}

sf_count_t Seek(sf_count_t offset, int whence, void* user) {
  auto* const file = static_cast<SoundBytes*>(user);
  sf_count_t base = 0;
  if (whence == SEEK_CUR) base = file->at;
  if (whence == SEEK_END) base = SizeOf(user);
  sf_count_t target = 0;
  if (__builtin_add_overflow(base, offset, &target) || target < 0) return -1;
  file->at = std::min(target, SizeOf(user));
  return file->at;
}

sf_count_t Read(void* to, sf_count_t count, void* user) {
  auto* const file = static_cast<SoundBytes*>(user);
  const sf_count_t size = std::clamp<sf_count_t>(count, 0, SizeOf(user) - file->at);
  if (size > 0) std::memcpy(to, file->bytes.data() + file->at, static_cast<size_t>(size));
  file->at += size;
  return size;
}

sf_count_t Tell(void* user) { return static_cast<SoundBytes*>(user)->at; }

struct CloseSound {
  void operator()(SNDFILE* file) const { sf_close(file); }
};

// Whether a WAV file ends inside its data. Programs that write to a pipe do not know the length,
// and write 0 or a number near the largest of 31 or 32 bits, behind which nobody reads.
bool IsCutWav(std::string_view file) {
  constexpr size_t kChunkHeader = 8;
  constexpr uint32_t kUnknown = 0x7FFF'0000;
  if (!file.starts_with("RIFF")) return false;
  for (size_t at = 12; file.size() - std::min(at, file.size()) >= kChunkHeader;) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i)
      size |= uint32_t{static_cast<uint8_t>(file[at + 4 + i])} << 8 * i;
    at += kChunkHeader;
    if (file.substr(at - kChunkHeader).starts_with("data")) {
      return size < kUnknown && size > file.size() - at;
    }
    at += size_t{size} + size % 2;
  }
  return false;
}

// Whether an MP3 file is shorter than the header of its encoder (Xing, Info) says. A file without
// one does not tell its length.
bool IsCutMp3(std::string_view file) {
  constexpr size_t kLongestTag = 256;  // from the beginning of the frame to the encoder's header
  constexpr uint32_t kHasFrames = 1;
  constexpr uint32_t kHasBytes = 2;
  const auto number = [file](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(file[at + i]);
    return value;
  };
  size_t frame = 0;
  if (file.starts_with("ID3") && file.size() >= 10) {
    frame = 10;
    for (size_t i = 6; i < 10; ++i) {
      frame += size_t{static_cast<uint8_t>(file[i]) & 0x7FU} << 7 * (9 - i);
    }
  }
  if (frame >= file.size() || file[frame] != '\xFF') return false;
  const std::string_view begin = file.substr(frame, kLongestTag);
  const size_t tag = std::min(begin.find("Xing"), begin.find("Info"));
  constexpr size_t kNumbers = 16;  // the name, the flags and both counts
  if (tag == std::string_view::npos || file.size() - frame - tag < kNumbers) return false;
  const uint32_t flags = number(frame + tag + 4);
  if ((flags & kHasBytes) == 0) return false;
  const size_t at = frame + tag + ((flags & kHasFrames) != 0 ? 12 : 8);
  return number(at) > file.size() - frame;
}

Status CheckLimits(const SF_INFO& info, const SoundLimits& limits) {
  const auto rate = static_cast<uint32_t>(std::max(info.samplerate, 0));
  const auto channels = static_cast<uint32_t>(std::max(info.channels, 0));
  if (rate < limits.min_rate || rate > limits.max_rate) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the sound has {} samples a second, expected {} to {}; convert it", rate,
                     limits.min_rate, limits.max_rate);
  }
  if (channels == 0 || channels > limits.max_channels) {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the sound has {} channels, expected 1 to {}; convert it", channels,
                     limits.max_channels);
  }
  return OkStatus();
}

// Decodes an opened file in blocks, so that its length need not be known.
class SoundReader {
 public:
  SoundReader(SNDFILE* file, const SF_INFO& info, const SoundLimits& limits)
      : file_(file),
        info_(info),
        max_seconds_(limits.max_seconds),
        most_(uint64_t{limits.max_seconds} * Rate()) {}

  Result<std::vector<float>> Read() {
    if (LengthIsKnown() && static_cast<uint64_t>(info_.frames) > most_) return TooLong();
    if (Rate() != kSoundRate) {
      RL_ASSIGN_OR_RETURN(resampler_, Resampler::Create(Rate(), kSoundRate));
    }
    std::vector<float> block(kBlock * Channels());
    while (true) {
      const sf_count_t frames =
          sf_readf_float(file_, block.data(), static_cast<sf_count_t>(kBlock));
      if (frames <= 0) break;
      RL_RETURN_IF_ERROR(Take(std::span(block).first(static_cast<size_t>(frames) * Channels())));
    }
    RL_RETURN_IF_ERROR(CheckEnd());
    if (resampler_) RL_RETURN_IF_ERROR(resampler_->Finish(samples_));
    return std::move(samples_);
  }

 private:
  static constexpr size_t kBlock = 4096;  // frames

  [[nodiscard]] uint32_t Rate() const { return static_cast<uint32_t>(info_.samplerate); }
  [[nodiscard]] size_t Channels() const { return static_cast<size_t>(info_.channels); }
  // libsndfile only estimates the length of MP3.
  [[nodiscard]] bool LengthIsKnown() const {
    return info_.frames > 0 && info_.frames < SF_COUNT_MAX &&
           (info_.format & SF_FORMAT_TYPEMASK) != SF_FORMAT_MPEG;
  }
  [[nodiscard]] tl::unexpected<Error> TooLong() const {
    return MakeError(ErrorKind::kUsage, "media.too_large",
                     "the sound lasts more than {} seconds, expected at most that; cut it",
                     max_seconds_);
  }

  // Mixes a block of interleaved samples and passes it on.
  Status Take(std::span<const float> block) {
    const size_t frames = block.size() / Channels();
    if (most_ - taken_ < frames) return TooLong();
    mono_.resize(frames);
    for (size_t i = 0; i < frames; ++i) {
      float sum = 0.0F;
      for (size_t c = 0; c < Channels(); ++c) sum += block[i * Channels() + c];
      if (!std::isfinite(sum)) {
        return MakeError(ErrorKind::kUsage, "media.samples",
                         "sample {} of the sound is infinite or not a number, expected finite "
                         "samples; convert the sound",
                         taken_ + i);
      }
      mono_[i] = sum / static_cast<float>(Channels());
    }
    taken_ += frames;
    if (resampler_) return resampler_->Process(mono_, samples_);
    samples_.insert(samples_.end(), mono_.begin(), mono_.end());
    return OkStatus();
  }

  Status CheckEnd() const {
    if (sf_error(file_) != SF_ERR_NO_ERROR) return DamagedSound(sf_strerror(file_));
    if (LengthIsKnown() && taken_ < static_cast<uint64_t>(info_.frames)) {
      return DamagedSound(fmt::format("it ends after {} of {} samples", taken_, info_.frames));
    }
    return OkStatus();
  }

  SNDFILE* file_;
  SF_INFO info_;
  uint32_t max_seconds_;
  uint64_t most_;       // frames
  uint64_t taken_ = 0;  // frames
  std::optional<Resampler> resampler_;
  std::vector<float> mono_;
  std::vector<float> samples_;
};

Result<std::vector<float>> Decode(std::string_view bytes, const SoundLimits& limits) {
  RL_RETURN_IF_ERROR(CheckFormat(bytes));
  if (IsCutWav(bytes) || IsCutMp3(bytes)) return DamagedSound("it ends inside its samples");
  SF_VIRTUAL_IO io{};
  io.get_filelen = SizeOf;
  io.seek = Seek;
  io.read = Read;
  io.tell = Tell;
  SoundBytes user{bytes, 0};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, CloseSound> file(sf_open_virtual(&io, SFM_READ, &info, &user));
  if (!file) return DamagedSound(sf_strerror(nullptr));
  RL_RETURN_IF_ERROR(CheckLimits(info, limits));
  RL_ASSIGN_OR_RETURN(std::vector<float> samples, SoundReader(file.get(), info, limits).Read());
  if (samples.size() < kMinSoundSamples) {
    return MakeError(ErrorKind::kUsage, "media.too_short",
                     "the sound has {} samples at {} Hz, expected at least {}, which is 10 ms; use "
                     "a longer one",
                     samples.size(), kSoundRate, kMinSoundSamples);
  }
  return samples;
}

}  // namespace

Result<std::vector<float>> DecodeSound(std::span<const std::byte> file, const SoundLimits& limits) {
  try {
    return Decode({reinterpret_cast<const char*>(file.data()), file.size()}, limits);
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorKind::kOutOfMemory, "media.memory",
                     "there is not enough memory to decode a sound of {} bytes; use a shorter one",
                     file.size());
  }
}

std::vector<std::span<const float>> SoundPieces(std::span<const float> samples) {
  std::vector<std::span<const float>> pieces;
  pieces.reserve(samples.size() / kMaxSoundPiece + 1);
  while (samples.size() >= kMinSoundSamples) {
    const size_t size = std::min(samples.size(), kMaxSoundPiece);
    pieces.push_back(samples.first(size));
    samples = samples.subspan(size);
  }
  return pieces;
}

std::vector<float> SoundFrames(std::span<const float> samples) {
  std::vector<float> frames(samples.begin(), samples.end());
  frames.resize((samples.size() + kSoundFrame - 1) / kSoundFrame * kSoundFrame, 0.0F);
  return frames;
}

}  // namespace rullama

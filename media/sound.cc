#include "media/sound.h"

#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "media/file_signature.h"
#include "media/mp3.h"
#include "media/ogg_headers.h"
#include "media/sound_mixer.h"

namespace rullama {
namespace {

using media_internal::DamagedSound;
using media_internal::DecodeMp3;
using media_internal::FileSignature;
using media_internal::IsMp3Frame;
using media_internal::kEndsInsideSamples;
using media_internal::SoundMixer;
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

// A file in memory, read by libsndfile.
struct SoundBytes {
  std::string_view bytes;
  sf_count_t at = 0;
  // Bytes that libsndfile reads in place of those at `patch_at`.
  size_t patch_at = 0;
  std::string patch = {};
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
  for (size_t i = 0; i < file->patch.size(); ++i) {
    const auto position = static_cast<sf_count_t>(file->patch_at + i) - file->at;
    if (position >= 0 && position < size) static_cast<char*>(to)[position] = file->patch[i];
  }
  file->at += size;
  return size;
}

sf_count_t Tell(void* user) { return static_cast<SoundBytes*>(user)->at; }

struct CloseSound {
  void operator()(SNDFILE* file) const { sf_close(file); }
};

constexpr size_t kChunkHeader = 8;  // of RIFF: a name and a size

uint32_t LittleEndian(std::string_view file, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(file[at + i])} << 8 * i;
  return value;
}

// The chunk with the samples of a WAV file.
struct WavData {
  size_t begin = 0;    // of the samples
  uint32_t size = 0;   // as the file says
  bool known = false;  // whether the file says it
};

// Programs that write to a pipe do not know the length. They write a number near the largest of 31
// or 32 bits, or 0, and leave the size of the whole file as it is without samples.
std::optional<WavData> FindWavData(std::string_view file) {
  constexpr uint32_t kUnknown = 0x7FFF'0000;
  if (!file.starts_with("RIFF")) return std::nullopt;
  for (size_t at = 12; file.size() - std::min(at, file.size()) >= kChunkHeader;) {
    const uint32_t size = LittleEndian(file, at + 4);
    at += kChunkHeader;
    if (file.substr(at - kChunkHeader).starts_with("data")) {
      const uint32_t whole = LittleEndian(file, 4);
      const bool ends_before = whole >= kUnknown || size_t{whole} + kChunkHeader <= at;
      return WavData{at, size, size < kUnknown && (size > 0 || !ends_before)};
    }
    at += size_t{size} + size % 2;
  }
  return std::nullopt;
}

// Whether a WAV file ends inside its samples.
bool IsCutWav(std::string_view file) {
  const auto data = FindWavData(file);
  return data && data->known && data->size > file.size() - data->begin;
}

// The file for libsndfile, which reads nothing of samples whose size is 0: the rest of the file is
// the sound.
SoundBytes BytesOf(std::string_view file) {
  SoundBytes bytes{.bytes = file};
  const auto data = FindWavData(file);
  if (!data || data->known || data->size > 0) return bytes;
  const size_t rest = file.size() - data->begin;
  bytes.patch_at = data->begin - 4;
  for (size_t i = 0; i < 4; ++i) bytes.patch.push_back(static_cast<char>(rest >> 8 * i));
  return bytes;
}

// Decodes an opened file in blocks, so that its length need not be known.
class SoundReader {
 public:
  SoundReader(SNDFILE* file, const SF_INFO& info, SoundMixer mixer)
      : file_(file), info_(info), mixer_(std::move(mixer)) {}

  Result<std::vector<float>> Read() {
    if (LengthIsKnown()) RL_RETURN_IF_ERROR(mixer_.CheckLength(Frames()));
    const auto channels = static_cast<size_t>(info_.channels);
    std::vector<float> block(kBlock * channels);
    while (true) {
      const sf_count_t frames =
          sf_readf_float(file_, block.data(), static_cast<sf_count_t>(kBlock));
      if (frames <= 0) break;
      RL_RETURN_IF_ERROR(
          mixer_.Take(std::span(block).first(static_cast<size_t>(frames) * channels)));
      if (mixer_.has_enough()) return std::move(mixer_).Finish();
    }
    RL_RETURN_IF_ERROR(CheckEnd());
    return std::move(mixer_).Finish();
  }

 private:
  static constexpr size_t kBlock = 4096;  // frames

  [[nodiscard]] uint64_t Frames() const { return static_cast<uint64_t>(info_.frames); }
  [[nodiscard]] bool LengthIsKnown() const {
    return info_.frames > 0 && info_.frames < SF_COUNT_MAX;
  }
  Status CheckEnd() const {
    if (sf_error(file_) != SF_ERR_NO_ERROR) return DamagedSound(sf_strerror(file_));
    if (LengthIsKnown() && mixer_.taken() < Frames()) {
      return DamagedSound(
          fmt::format("it ends after {} of {} samples", mixer_.taken(), info_.frames));
    }
    return OkStatus();
  }

  SNDFILE* file_;
  SF_INFO info_;
  SoundMixer mixer_;
};

using SoundFile = std::unique_ptr<SNDFILE, CloseSound>;

// Null if it cannot be opened. `bytes` outlives the file.
SoundFile OpenWithSndfile(SoundBytes& bytes, SF_INFO& info) {
  SF_VIRTUAL_IO io{};
  io.get_filelen = SizeOf;
  io.seek = Seek;
  io.read = Read;
  io.tell = Tell;
  return SoundFile(sf_open_virtual(&io, SFM_READ, &info, &bytes));
}

// Every format but MP3.
Result<std::vector<float>> DecodeWithSndfile(std::string_view bytes, const SoundLimits& limits) {
  if (bytes.starts_with("OggS")) RL_RETURN_IF_ERROR(media_internal::CheckOggHeaders(bytes));
  SoundBytes user = BytesOf(bytes);
  SF_INFO info{};
  const SoundFile file = OpenWithSndfile(user, info);
  if (!file) return DamagedSound(sf_strerror(nullptr));
  RL_ASSIGN_OR_RETURN(SoundMixer mixer, SoundMixer::Create(info.samplerate, info.channels, limits));
  return SoundReader(file.get(), info, std::move(mixer)).Read();
}

Result<std::vector<float>> Decode(std::string_view bytes, const SoundLimits& limits) {
  RL_RETURN_IF_ERROR(CheckFormat(bytes));
  if (IsCutWav(bytes)) return DamagedSound(kEndsInsideSamples);
  const bool mp3 = bytes.starts_with("ID3") || IsMp3Frame(bytes);
  RL_ASSIGN_OR_RETURN(std::vector<float> samples,
                      mp3 ? DecodeMp3(bytes, limits) : DecodeWithSndfile(bytes, limits));
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

std::optional<uint64_t> SoundSamplesOfHeader(std::span<const std::byte> file) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  if (!bytes.starts_with("RIFF") && !bytes.starts_with("fLaC")) return std::nullopt;
  SoundBytes user = BytesOf(bytes);
  SF_INFO info{};
  const SoundFile opened = OpenWithSndfile(user, info);
  if (!opened || info.samplerate <= 0 || info.frames <= 0) return std::nullopt;
  const auto frames = static_cast<uint64_t>(info.frames);
  if (frames > std::numeric_limits<uint64_t>::max() / kSoundRate) return std::nullopt;
  return frames * kSoundRate / static_cast<uint64_t>(info.samplerate);
}

}  // namespace rullama

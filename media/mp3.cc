#include "media/mp3.h"

#include <fmt/format.h>
#include <mpg123.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "media/sound_mixer.h"

namespace rullama::media_internal {
namespace {

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

struct CloseMp3 {
  void operator()(mpg123_handle* decoder) const { mpg123_delete(decoder); }
};
using Decoder = std::unique_ptr<mpg123_handle, CloseMp3>;

// A decoder that has the file and gives f32 at the file's own rate, without the silence that the
// encoder has added.
Result<Decoder> OpenDecoder(std::string_view file) {
  int error = MPG123_OK;
  Decoder decoder(mpg123_new(nullptr, &error));
  if (!decoder) {
    if (error == MPG123_OUT_OF_MEM) throw std::bad_alloc();
    return DamagedSound(mpg123_plain_strerror(error));
  }
  mpg123_param(decoder.get(), MPG123_ADD_FLAGS, MPG123_QUIET | MPG123_FORCE_FLOAT | MPG123_GAPLESS,
               0);
  mpg123_param(decoder.get(), MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0);
  if (mpg123_open_feed(decoder.get()) != MPG123_OK ||
      mpg123_feed(decoder.get(), reinterpret_cast<const unsigned char*>(file.data()),
                  file.size()) != MPG123_OK) {
    return DamagedSound(mpg123_strerror(decoder.get()));
  }
  return decoder;
}

class Mp3Reader {
 public:
  Mp3Reader(std::string_view file, Decoder decoder, const SoundLimits& limits)
      : file_(file), decoder_(std::move(decoder)), limits_(limits) {}

  Result<std::vector<float>> Read() {
    while (true) {
      unsigned char* audio = nullptr;
      size_t bytes = 0;
      const int result = mpg123_decode_frame(decoder_.get(), nullptr, &audio, &bytes);
      if (result == MPG123_NEED_MORE || result == MPG123_DONE) break;
      if (result == MPG123_NEW_FORMAT) {
        RL_RETURN_IF_ERROR(TakeFormat());
      } else if (result != MPG123_OK) {
        return DamagedSound(mpg123_strerror(decoder_.get()));
      }
      RL_RETURN_IF_ERROR(CheckFollowsLast());
      if (bytes == 0 || !mixer_) continue;
      RL_RETURN_IF_ERROR(
          mixer_->Take({reinterpret_cast<const float*>(audio), bytes / sizeof(float)}));
      if (mixer_->has_enough()) return std::move(*mixer_).Finish();
    }
    if (!mixer_) return DamagedSound("it has no frame of MP3");
    if (EndsInFrame()) return DamagedSound(kEndsInsideSamples);
    return std::move(*mixer_).Finish();
  }

 private:
  Status TakeFormat() {
    long rate = 0;
    int channels = 0;
    int encoding = 0;
    mpg123_getformat(decoder_.get(), &rate, &channels, &encoding);
    if (mixer_ && (rate != rate_ || channels != channels_)) {
      return DamagedSound("its rate or its channels change on the way");
    }
    if (mixer_) return OkStatus();
    rate_ = rate;
    channels_ = channels;
    RL_ASSIGN_OR_RETURN(mixer_, SoundMixer::Create(rate, channels, limits_));
    return OkStatus();
  }

  // Error media.damaged for bytes between two frames, which the decoder skips: sound is missing
  // there. Tags may stand between the frames of joined files.
  Status CheckFollowsLast() {
    mpg123_frameinfo frame{};
    if (mpg123_info(decoder_.get(), &frame) != MPG123_OK) return OkStatus();
    const auto at = static_cast<size_t>(std::max<off_t>(mpg123_framepos(decoder_.get()), 0));
    const std::string_view skipped =
        file_.substr(std::min(end_, file_.size()), at - std::min(end_, at));
    const bool is_tag =
        std::ranges::any_of(kTags, [&](std::string_view tag) { return skipped.starts_with(tag); });
    const bool first = end_ == 0;
    end_ = at + static_cast<size_t>(std::max(frame.framesize, 0));
    if (first || skipped.empty() || is_tag) return OkStatus();
    return DamagedSound(fmt::format("the {} bytes at offset {} are not a frame of MP3",
                                    skipped.size(), at - skipped.size()));
  }

  // Whether the decoder waits for the rest of a frame. Tags after the last frame may remain, too.
  [[nodiscard]] bool EndsInFrame() const {
    long left = 0;
    double unused = 0;
    if (mpg123_getstate(decoder_.get(), MPG123_BUFFERFILL, &left, &unused) != MPG123_OK) {
      return false;
    }
    const auto size = static_cast<size_t>(std::max(left, 0L));
    return size <= file_.size() && IsMp3Frame(file_.substr(file_.size() - size));
  }

  static constexpr std::string_view kTags[] = {"ID3", "TAG", "APETAGEX"};

  std::string_view file_;
  size_t end_ = 0;  // of the frame decoded last
  Decoder decoder_;
  SoundLimits limits_;
  std::optional<SoundMixer> mixer_;
  long rate_ = 0;
  int channels_ = 0;
};

}  // namespace

// Eleven bits of synchronisation, then a version and the layer.
// AAC in ADTS frames begins alike, with other bits of the layer.
bool IsMp3Frame(std::string_view text) {
  if (text.size() < 2 || text[0] != '\xFF') return false;
  const auto second = static_cast<unsigned char>(text[1]);
  constexpr unsigned kLayerMask = 0x06;
  constexpr unsigned kLayer3 = 0x02;
  constexpr unsigned kSync = 0xE0;
  return (second & kSync) == kSync && (second & kLayerMask) == kLayer3;
}

Result<std::vector<float>> DecodeMp3(std::string_view file, const SoundLimits& limits) {
  if (IsCutMp3(file)) return DamagedSound(kEndsInsideSamples);
  RL_ASSIGN_OR_RETURN(Decoder decoder, OpenDecoder(file));
  return Mp3Reader(file, std::move(decoder), limits).Read();
}

}  // namespace rullama::media_internal

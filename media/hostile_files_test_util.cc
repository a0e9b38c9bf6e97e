#include "media/hostile_files_test_util.h"

#include <sndfile.h>
#include <zlib.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "media/encoders_test_util.h"

namespace rullama {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

constexpr int kWav16 = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
constexpr int kWavFloat = SF_FORMAT_WAV | SF_FORMAT_FLOAT;

std::string TextOf(const FileBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Part(const std::string& file, double part) {
  return file.substr(0, static_cast<size_t>(static_cast<double>(file.size()) * part));
}

std::string BigEndian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

// A PNG of 8 x 8 pixels whose header tells other sides, with a checksum that fits.
std::string PngOfSides(uint32_t width, uint32_t height) {
  std::string file = TextOf(EncodePng(8, 8, std::vector<uint8_t>(192, 90)));
  constexpr size_t kHeader = 12;  // of the chunk IHDR, from its name on
  constexpr size_t kHeaderBytes = 17;
  file.replace(kHeader + 4, 8, BigEndian(width) + BigEndian(height));
  const auto* const data = reinterpret_cast<const Bytef*>(file.data() + kHeader);
  file.replace(kHeader + kHeaderBytes, 4,
               BigEndian(static_cast<uint32_t>(crc32(0, data, kHeaderBytes))));
  return file;
}

std::string BmpOfSides(uint32_t width, uint32_t height) {
  std::string file = TextOf(EncodeBmp(8, 8, std::vector<uint8_t>(192, 90)));
  for (size_t i = 0; i < 4; ++i) {
    file[18 + i] = static_cast<char>(width >> (8 * i));
    file[22 + i] = static_cast<char>(height >> (8 * i));
  }
  return file;
}

std::string GifOfSides(uint16_t width, uint16_t height) {
  constexpr uint8_t kColours[] = {255, 0, 0, 0, 0, 255};
  std::string file = TextOf(EncodeGif(2, 1, {0, 1}, kColours));
  const auto put = [&file](size_t at, uint16_t value) {
    file[at] = static_cast<char>(value & 0xFF);
    file[at + 1] = static_cast<char>(value >> 8);
  };
  put(6, width);  // of the screen
  put(8, height);
  const size_t frame = file.find(',', 13);
  put(frame + 5, width);
  put(frame + 7, height);
  return file;
}

// Samples that sound like noise, so that coders need many bits for them.
std::vector<float> Noise(size_t samples) {
  std::vector<float> noise;
  uint32_t state = 1;
  for (size_t i = 0; i < samples; ++i) {
    state = state * 1664525 + 1013904223;
    noise.push_back(static_cast<float>(state >> 8) * 0x1p-24F - 0.5F);
  }
  return noise;
}

std::string Sound(int format, int rate, int channels, const std::vector<float>& samples) {
  return TextOf(EncodeSound(format, rate, channels, samples));
}

// MP3 as streams have it: frames alone, without the header of the encoder.
std::string Mp3Frames() {
  const std::string file =
      Sound(SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44'100, 1, Noise(44'100));
  return file.substr(file.find(file.substr(0, 2), 4));
}

std::string Id3Tag() { return "ID3\x03\0\0\0\0\0\x10"s + std::string(16, '\0'); }

std::string DamagedMp3() {
  std::string file = Mp3Frames();
  for (size_t i = 300; i < file.size(); i += 157) file[i] = static_cast<char>(file[i] ^ 0x5F);
  return file;
}

std::vector<HostileFile> Pictures() {
  constexpr auto kPicture = MediaKind::kPicture;
  const std::string png = TextOf(EncodePng(40, 40, std::vector<uint8_t>(4800, 77)));
  const std::string jpeg = TextOf(EncodeJpeg(40, 40, std::vector<uint8_t>(4800, 77)));
  const std::string webp = TextOf(EncodeWebp(40, 40, std::vector<uint8_t>(6400, 77)));
  const std::string bmp = TextOf(EncodeBmp(40, 40, std::vector<uint8_t>(4800, 77)));
  return {
      {"png of 0 x 0", kPicture, PngOfSides(0, 0), "media.damaged"},
      {"png of 60000 x 60000", kPicture, PngOfSides(60'000, 60'000), "media.too_large"},
      {"gif of 60000 x 60000", kPicture, GifOfSides(60'000, 60'000), "media.too_large"},
      {"png of 9600 x 2", kPicture, TextOf(EncodePng(9600, 2, std::vector<uint8_t>(57'600))),
       "media.shape"},
      {"half a png", kPicture, Part(png, 0.5), "media.damaged"},
      {"half a jpeg", kPicture, Part(jpeg, 0.5), "media.damaged"},
      {"half a webp", kPicture, Part(webp, 0.5), "media.damaged"},
      {"jpeg of CMYK", kPicture,
       TextOf(EncodeJpeg(8, 8, std::vector<uint8_t>(256), {.components = 4})), ""},
      {"bmp", kPicture, bmp, ""},
      {"half a bmp", kPicture, Part(bmp, 0.5), "media.damaged"},
      {"bmp of 60000 x 60000", kPicture, BmpOfSides(60'000, 60'000), "media.too_large"},
      {"bmp with run lengths", kPicture,
       TextOf(EncodeBmp(8, 8, std::vector<uint8_t>(64), {.bits = 8, .compression = 1})),
       "media.format"},
      {"svg", kPicture, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\"/>", "media.format"},
      {"a sound", kPicture, Sound(kWav16, 16'000, 1, Noise(400)), "media.format"},
      {"png of 16 bits", kPicture,
       TextOf(EncodePng(8, 8, std::vector<uint8_t>(384, 77), {.depth = 16})), ""},
  };
}

std::vector<HostileFile> Sounds() {
  constexpr auto kSound = MediaKind::kSound;
  constexpr int kFlac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
  constexpr int kMp3 = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;
  std::vector<float> nan = Noise(4000);
  nan[2000] = std::numeric_limits<float>::quiet_NaN();
  const std::string mp3 = Mp3Frames();
  return {
      {"no samples", kSound, Sound(kWav16, 16'000, 1, {}), "media.too_short"},
      {"31 minutes", kSound, Sound(kWav16, 1000, 1, std::vector<float>(1'860'000)),
       "media.too_large"},
      {"1 sample a second", kSound, Sound(kWav16, 1, 1, Noise(400)), "media.too_large"},
      {"400000 samples a second", kSound, Sound(kWav16, 400'000, 1, Noise(8000)),
       "media.too_large"},
      {"384000 samples a second", kSound, Sound(kWav16, 384'000, 1, Noise(8000)), ""},
      {"9 channels", kSound, Sound(kWav16, 16'000, 9, Noise(9000)), "media.too_large"},
      {"8 channels", kSound, Sound(kWav16, 16'000, 8, Noise(8000)), ""},
      {"not a number", kSound, Sound(kWavFloat, 16'000, 1, nan), "media.samples"},
      {"half a wav", kSound, Part(Sound(kWav16, 16'000, 1, Noise(8000)), 0.5), "media.damaged"},
      {"half a flac", kSound, Part(Sound(kFlac, 16'000, 1, Noise(8000)), 0.5), "media.damaged"},
      {"half an mp3", kSound, Part(Sound(kMp3, 44'100, 1, Noise(44'100)), 0.5), "media.damaged"},
      {"frames of mp3", kSound, mp3, ""},
      {"frames of mp3, the last one cut", kSound, mp3.substr(0, mp3.size() - 9), "media.damaged"},
      {"one header of mp3", kSound, std::string("\xFF\xFB\x90\x00"sv) + std::string(900, '\x33'),
       "media.damaged"},
      {"an mp3 with wrong bits", kSound, DamagedMp3(), "media.damaged"},
      {"an mp3 with a hole", kSound, mp3.substr(0, 5000) + mp3.substr(5100), "media.damaged"},
      {"joined mp3 files", kSound, mp3 + Id3Tag() + mp3 + "TAG" + std::string(125, ' '), ""},
      {"m4a", kSound,
       std::string("\0\0\0\x20"
                   "ftypM4A "sv),
       "media.format"},
  };
}

}  // namespace

std::vector<HostileFile> HostileFiles() {
  std::vector<HostileFile> files = Pictures();
  for (HostileFile& file : Sounds()) files.push_back(std::move(file));
  return files;
}

}  // namespace rullama

#include "media/media_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace rullama {
namespace {

// XXH3 of the bytes, with the numbers before them as the seed.
template <typename T>
MediaHash HashOf(std::span<const T> values, std::span<const uint64_t> numbers) {
  const uint64_t seed = XXH3_64bits(numbers.data(), numbers.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits_withSeed(values.data(), values.size_bytes(), seed);
  return {hash.high64, hash.low64};
}

// Keeps a picture and a sound of the same bytes apart.
constexpr uint64_t kPictureKind = 1;
constexpr uint64_t kSoundKind = 2;

}  // namespace

MediaHash HashPicture(const Picture& picture, uint32_t image_tokens) {
  const uint64_t numbers[] = {kPictureKind, picture.width, picture.height, image_tokens};
  return HashOf<uint8_t>(picture.rgb, numbers);
}

MediaHash HashSound(std::span<const float> samples) {
  const uint64_t numbers[] = {kSoundKind};
  return HashOf<float>(samples, numbers);
}

}  // namespace rullama

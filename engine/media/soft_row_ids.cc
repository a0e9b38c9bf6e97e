#include "engine/media/soft_row_ids.h"

#include <algorithm>

namespace rullama {
namespace {

// An id is -1 - x, where the bit above the hash of x tells the kind.
constexpr int kHashBits = 30;
constexpr uint32_t kSoundBit = 1U << kHashBits;

// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

}  // namespace

int32_t SoftRowId(MediaKind kind, const MediaHash& hash, int64_t row) {
  const uint64_t mixed = Mix(hash.low + Mix(hash.high + Mix(static_cast<uint64_t>(row))));
  const uint32_t kind_bit = kind == MediaKind::kSound ? kSoundBit : 0;
  const uint32_t x = static_cast<uint32_t>(mixed >> (64 - kHashBits)) | kind_bit;
  return -1 - static_cast<int32_t>(x);
}

MediaKind KindOfSoftRow(int32_t id) {
  const auto x = static_cast<uint32_t>(-1 - id);
  return (x & kSoundBit) != 0 ? MediaKind::kSound : MediaKind::kPicture;
}

std::vector<SoftRows> SoftRowsOf(std::span<const int32_t> prompt, bool whole_pictures) {
  std::vector<SoftRows> media;
  for (auto at = prompt.begin(); at != prompt.end();) {
    const auto begin = std::find_if(at, prompt.end(), IsSoftRow);
    if (begin == prompt.end()) break;
    at = std::find_if_not(begin, prompt.end(), IsSoftRow);
    media.push_back(
        {.first = begin - prompt.begin(),
         .count = at - begin,
         .values = {},
         .see_each_other = whole_pictures && KindOfSoftRow(*begin) == MediaKind::kPicture});
  }
  return media;
}

}  // namespace rullama

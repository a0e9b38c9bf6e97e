// Any bytes give a picture of the size that it names, or an error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "media/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const rullama::PictureLimits limits{1'000'000};
  const auto picture = rullama::DecodePicture(std::as_bytes(std::span(data, size)), limits);
  const auto header = rullama::ReadPictureHeader(std::as_bytes(std::span(data, size)), limits);
  RL_CHECK(header || !picture);
  if (!picture) {
    RL_CHECK(picture.error().id.starts_with("media.") && !picture.error().message.empty());
    return 0;
  }
  RL_CHECK(picture->width > 0 && picture->height > 0);
  RL_CHECK(picture->rgb.size() == size_t{picture->width} * picture->height * 3);
  RL_CHECK(header->width * size_t{header->height} * 3 == picture->rgb.size());
  RL_CHECK(header->decoding_bytes >= picture->rgb.size());
  RL_CHECK(picture->rgb.size() <= limits.max_pixels * 3);
  return 0;
}

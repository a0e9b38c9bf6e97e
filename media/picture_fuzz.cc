// Any bytes give a picture of the size that it names, or an error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "media/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr rullama::PictureLimits kLimits{1'000'000};
  const auto picture = rullama::DecodePicture(std::as_bytes(std::span(data, size)), kLimits);
  if (!picture) {
    RL_CHECK(picture.error().id.starts_with("media.") && !picture.error().message.empty());
    return 0;
  }
  RL_CHECK(picture->width > 0 && picture->height > 0);
  RL_CHECK(picture->rgb.size() == size_t{picture->width} * picture->height * 3);
  RL_CHECK(picture->rgb.size() <= kLimits.max_pixels * 3);
  return 0;
}

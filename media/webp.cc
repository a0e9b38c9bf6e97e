// WebP with libwebp: lossy, lossless, with alpha; of an animation the first frame.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

struct Delete {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, Delete>;
using Animation = std::unique_ptr<WebPAnimDecoder, Delete>;

int OrientationOfChunk(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) == 0) return 1;
  const int orientation = ExifOrientation({chunk.chunk.bytes, chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

// Draws the first frame of the animation on its canvas, RGBA.
bool DrawFirstFrame(const WebPData& data, StoredPicture& picture) {
  WebPAnimDecoderOptions options{};
  if (WebPAnimDecoderOptionsInit(&options) == 0) return false;
  options.color_mode = MODE_RGBA;
  const Animation animation(WebPAnimDecoderNew(&data, &options));
  uint8_t* canvas = nullptr;  // owned by the decoder
  int milliseconds = 0;
  if (!animation || WebPAnimDecoderGetNext(animation.get(), &canvas, &milliseconds) == 0) {
    return false;
  }
  std::memcpy(picture.samples.data(), canvas, picture.samples.size());
  return true;
}

bool DecodeStill(Bytes file, StoredPicture& picture) {
  const int stride = static_cast<int>(picture.width * picture.channels);
  auto* const decode = picture.channels == 4 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  return decode(file.data(), file.size(), picture.samples.data(), picture.samples.size(), stride) !=
         nullptr;
}

}  // namespace

Result<StoredPicture> DecodeWebp(Bytes file, const PictureLimits& limits) {
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(file.data(), file.size(), &features) != VP8_STATUS_OK) {
    return DamagedPicture("WebP", "its header is not valid");
  }
  const bool animated = features.has_animation != 0;
  StoredPicture picture;
  RL_RETURN_IF_ERROR(Allocate(picture, static_cast<uint64_t>(features.width),
                              static_cast<uint64_t>(features.height),
                              animated || features.has_alpha != 0 ? 4 : 3, limits));
  const WebPData data{file.data(), file.size()};
  const Demuxer demuxer(WebPDemux(&data));
  if (!demuxer) return DamagedPicture("WebP", "a chunk is missing or cut off");
  picture.orientation = OrientationOfChunk(demuxer.get());
  if (!(animated ? DrawFirstFrame(data, picture) : DecodeStill(file, picture))) {
    return DamagedPicture("WebP", "its pixels are not complete");
  }
  return picture;
}

}  // namespace rullama::media_internal

// WebP with libwebp: lossy, lossless, with alpha; of an animation the first frame.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstdint>
#include <memory>

#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

struct Delete {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, Delete>;

int OrientationOfChunk(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) == 0) return 1;
  const int orientation = ExifOrientation({chunk.chunk.bytes, chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

// Draws the first frame of the animation where it lies on the canvas, RGBA. WebPAnimDecoder would
// hold two more canvases.
bool DrawFirstFrame(const WebPDemuxer* demuxer, StoredPicture& picture) {
  WebPIterator frame{};
  if (WebPDemuxGetFrame(demuxer, 1, &frame) == 0) return false;
  const size_t stride = size_t{picture.width} * 4;
  const auto x = static_cast<size_t>(frame.x_offset), y = static_cast<size_t>(frame.y_offset);
  const bool fits = x + static_cast<size_t>(frame.width) <= picture.width &&
                    y + static_cast<size_t>(frame.height) <= picture.height;
  const size_t first = y * stride + x * 4;
  const bool drawn =
      fits &&
      WebPDecodeRGBAInto(frame.fragment.bytes, frame.fragment.size, picture.samples.data() + first,
                         picture.samples.size() - first, static_cast<int>(stride)) != nullptr;
  WebPDemuxReleaseIterator(&frame);
  return drawn;
}

// Decoding without loss keeps 4 bytes a pixel, that of alpha one.
uint64_t ExtraBytes(const WebPBitstreamFeatures& features) {
  constexpr int kLossy = 1;
  const uint64_t each = features.format != kLossy ? 4 : features.has_alpha != 0 ? 1 : 0;
  return each * static_cast<uint64_t>(features.width) * static_cast<uint64_t>(features.height);
}

bool DecodeStill(Bytes file, StoredPicture& picture) {
  const int stride = static_cast<int>(picture.width * picture.channels);
  auto* const decode = picture.channels == 4 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  return decode(file.data(), file.size(), picture.samples.data(), picture.samples.size(), stride) !=
         nullptr;
}

}  // namespace

Result<StoredPicture> DecodeWebp(Bytes file, const PictureLimits& limits, ReadDepth depth) {
  WebPBitstreamFeatures features{};
  if (WebPGetFeatures(file.data(), file.size(), &features) != VP8_STATUS_OK) {
    return DamagedPicture("WebP", "its header is not valid");
  }
  const bool animated = features.has_animation != 0;
  StoredPicture picture;
  RL_RETURN_IF_ERROR(SetSize(picture, static_cast<uint64_t>(features.width),
                             static_cast<uint64_t>(features.height),
                             animated || features.has_alpha != 0 ? 4 : 3, limits));
  picture.extra_bytes = ExtraBytes(features);
  const WebPData data{file.data(), file.size()};
  const Demuxer demuxer(WebPDemux(&data));
  if (!demuxer) return DamagedPicture("WebP", "a chunk is missing or cut off");
  picture.orientation = OrientationOfChunk(demuxer.get());
  if (depth == ReadDepth::kHeader) return picture;
  Allocate(picture);
  if (!(animated ? DrawFirstFrame(demuxer.get(), picture) : DecodeStill(file, picture))) {
    return DamagedPicture("WebP", "its pixels are not complete");
  }
  return picture;
}

}  // namespace rullama::media_internal

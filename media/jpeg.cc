// JPEG, baseline and progressive, with libjpeg-turbo.
//
// The library reports errors by a function that must not return. It jumps back into ReadHeader or
// ReadRows, over frames of the library and over our callbacks, none of which has a destructor to
// run.
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE and does not include it

// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>
// jerror.h needs jpeglib.h before it.
#include <jerror.h>

#include <stop_token>
#include <vector>

#include "media/picture_decoders.h"

namespace rullama::media_internal {
namespace {

// A progressive file may repeat scans that are a few bytes long and cost time for every pixel.
// Files of encoders have around ten.
constexpr int kMaxScans = 100;

constexpr size_t kInks = 4;

struct JpegReader {
  explicit JpegReader(const std::stop_token& stopped) : stop(stopped) {}
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info); }

  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  const std::stop_token& stop;
  std::jmp_buf failed{};
  char message[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void Fail(j_common_ptr info) {
  auto* const reader = static_cast<JpegReader*>(info->client_data);
  info->err->format_message(info, reader->message);
  std::longjmp(reader->failed, 1);
}

// The library continues after damage and fills in grey; a picture with a part missing is refused
// instead. Other warnings (bytes between markers, odd versions) leave the pixels whole.
void OnMessage(j_common_ptr info, int level) {
  constexpr int kWarning = -1;
  if (level != kWarning) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      Fail(info);
    default:
      break;
  }
}

void OnProgress(j_common_ptr info) {
  auto* const reader = static_cast<JpegReader*>(info->client_data);
  if (reader->stop.stop_requested()) std::longjmp(reader->failed, 1);
  if (reader->info.input_scan_number <= kMaxScans) return;
  std::snprintf(reader->message, sizeof(reader->message), "more than %d scans", kMaxScans);
  std::longjmp(reader->failed, 1);
}

void OnOutput(j_common_ptr /*info*/) {}

bool ReadHeader(JpegReader& reader, const uint8_t* file, size_t size) {
  reader.info.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = Fail;
  reader.errors.emit_message = OnMessage;
  reader.errors.output_message = OnOutput;
  reader.info.client_data = &reader;
  if (setjmp(reader.failed) != 0) return false;
  jpeg_create_decompress(&reader.info);
  reader.progress.progress_monitor = OnProgress;
  reader.info.progress = &reader.progress;
  jpeg_mem_src(&reader.info, file, size);
  constexpr unsigned kLongestMarker = 0xFFFF;
  jpeg_save_markers(&reader.info, JPEG_APP0 + 1, kLongestMarker);
  jpeg_read_header(&reader.info, TRUE);
  return true;
}

bool IsOfInks(const jpeg_decompress_struct& info) {
  return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
}

// White light, as 255, after two inks that let `a` and `b` of 255 pass.
uint8_t Passing(uint32_t a, uint32_t b) {
  constexpr uint32_t kWhite = 255;
  return static_cast<uint8_t>((a * b + kWhite / 2) / kWhite);
}

// Mixes cyan, magenta, yellow and black as a screen shows them. Files with the marker of Adobe, as
// nearly all are, store how much light an ink lets pass, others how much ink there is.
void MixInks(const jpeg_decompress_struct& info, const uint8_t* inks, uint8_t* rgb) {
  const uint8_t flip = info.saw_Adobe_marker != FALSE ? 0 : 255;
  for (JDIMENSION x = 0; x < info.output_width; ++x, inks += kInks, rgb += 3) {
    const uint32_t black = inks[3] ^ flip;
    for (size_t c = 0; c < 3; ++c) rgb[c] = Passing(uint32_t{inks[c]} ^ flip, black);
  }
}

// Writes [height, width, 3] to `rows`. `inks`: room for a row of a picture of inks.
bool ReadRows(JpegReader& reader, uint8_t* rows, uint8_t* inks) {
  if (setjmp(reader.failed) != 0) return false;
  const bool mixes = IsOfInks(reader.info);
  reader.info.out_color_space = mixes ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&reader.info);
  while (reader.info.output_scanline < reader.info.output_height) {
    if (reader.stop.stop_requested()) return false;
    uint8_t* const to = rows + size_t{reader.info.output_scanline} * reader.info.output_width * 3;
    JSAMPROW row = mixes ? inks : to;
    jpeg_read_scanlines(&reader.info, &row, 1);
    if (mixes) MixInks(reader.info, inks, to);
  }
  jpeg_finish_decompress(&reader.info);
  return true;
}

int OrientationOfMarkers(const JpegReader& reader) {
  for (auto* marker = reader.info.marker_list; marker != nullptr; marker = marker->next) {
    const Bytes block(marker->data, marker->data_length);
    constexpr Bytes::size_type kShortest = 6;  // "Exif\0\0"; other users of APP1 begin otherwise
    if (block.size() > kShortest && block[0] == 'E' && block[1] == 'x') {
      return ExifOrientation(block);
    }
  }
  return 1;
}

// Error media.format for channels that have no known meaning.
Status CheckColours(J_COLOR_SPACE space) {
  switch (space) {
    case JCS_GRAYSCALE:
    case JCS_RGB:
    case JCS_YCbCr:
    case JCS_CMYK:
    case JCS_YCCK:
      return OkStatus();
    default:
      return MakeError(ErrorKind::kUsage, "media.format",
                       "the picture is a JPEG file with unknown colours, expected RGB, grey or "
                       "CMYK; convert the picture");
  }
}

// The coefficients of a file whose scans come one after another, such as a progressive one, are
// kept whole until the last scan.
uint64_t CoefficientBytes(jpeg_decompress_struct& info) {
  if (jpeg_has_multiple_scans(&info) == FALSE) return 0;
  uint64_t blocks = 0;
  for (int i = 0; i < info.num_components; ++i) {
    const jpeg_component_info& component = info.comp_info[i];
    blocks += uint64_t{component.width_in_blocks} * component.height_in_blocks;
  }
  return blocks * DCTSIZE2 * sizeof(JCOEF);
}

}  // namespace

Result<StoredPicture> DecodeJpeg(Bytes file, const PictureLimits& limits, ReadDepth depth) {
  JpegReader reader(limits.stop);
  if (!ReadHeader(reader, file.data(), file.size())) return DamagedPicture("JPEG", reader.message);
  RL_RETURN_IF_ERROR(CheckColours(reader.info.jpeg_color_space));
  StoredPicture picture;
  RL_RETURN_IF_ERROR(
      SetSize(picture, reader.info.image_width, reader.info.image_height, 3, limits));
  picture.orientation = OrientationOfMarkers(reader);
  const size_t ink_bytes = IsOfInks(reader.info) ? size_t{picture.width} * kInks : 0;
  picture.extra_bytes = CoefficientBytes(reader.info) + ink_bytes;
  if (depth == ReadDepth::kHeader) return picture;
  Allocate(picture);
  std::vector<uint8_t> inks(ink_bytes);
  if (!ReadRows(reader, picture.samples.data(), inks.data())) {
    if (limits.stop.stop_requested()) return DecodingStopped();
    return DamagedPicture("JPEG", reader.message);
  }
  return picture;
}

}  // namespace rullama::media_internal

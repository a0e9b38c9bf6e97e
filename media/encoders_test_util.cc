#include "media/encoders_test_util.h"

#include <gif_lib.h>
#include <gtest/gtest.h>
#include <png.h>
#include <sndfile.h>
#include <webp/encode.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace rullama {
namespace {

void Append(FileBytes& file, const void* bytes, size_t size) {
  const auto* const first = static_cast<const std::byte*>(bytes);
  file.insert(file.end(), first, first + size);
}

void WritePng(png_structp png, png_bytep bytes, size_t size) {
  Append(*static_cast<FileBytes*>(png_get_io_ptr(png)), bytes, size);
}

int WriteGif(GifFileType* gif, const GifByteType* bytes, int size) {
  Append(*static_cast<FileBytes*>(gif->UserData), bytes, static_cast<size_t>(size));
  return size;
}

void PutGifFrame(GifFileType* gif, uint32_t width, uint32_t height, std::vector<uint8_t>& indices,
                 const GifOptions& options) {
  GraphicsControlBlock control{};
  control.TransparentColor = options.transparent;
  GifByteType block[4];
  EGifGCBToExtension(&control, block);
  EXPECT_EQ(EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, sizeof(block), block), GIF_OK);
  EXPECT_EQ(EGifPutImageDesc(gif, 0, 0, static_cast<int>(width), static_cast<int>(height),
                             options.interlaced, nullptr),
            GIF_OK);
  const auto put = [&](uint32_t y) {
    EXPECT_EQ(EGifPutLine(gif, &indices[size_t{y} * width], static_cast<int>(width)), GIF_OK);
  };
  if (!options.interlaced) {
    for (uint32_t y = 0; y < height; ++y) put(y);
    return;
  }
  for (uint32_t y = 0; y < height; y += 8) put(y);
  for (uint32_t y = 4; y < height; y += 8) put(y);
  for (uint32_t y = 2; y < height; y += 4) put(y);
  for (uint32_t y = 1; y < height; y += 2) put(y);
}

struct SoundFile {
  FileBytes bytes;
  sf_count_t at = 0;
};

SF_VIRTUAL_IO SoundInMemory() {
  SF_VIRTUAL_IO io{};
  io.get_filelen = [](void* user) {
    return static_cast<sf_count_t>(static_cast<SoundFile*>(user)->bytes.size());
  };
  io.seek = [](sf_count_t offset, int whence, void* user) {
    auto* const file = static_cast<SoundFile*>(user);
    const auto size = static_cast<sf_count_t>(file->bytes.size());
    file->at = offset + (whence == SEEK_CUR ? file->at : whence == SEEK_END ? size : 0);
    return file->at;
  };
  io.read = [](void* to, sf_count_t count, void* user) {
    auto* const file = static_cast<SoundFile*>(user);
    count = std::min(count, static_cast<sf_count_t>(file->bytes.size()) - file->at);
    std::memcpy(to, file->bytes.data() + file->at, static_cast<size_t>(count));
    file->at += count;
    return count;
  };
  io.write = [](const void* from, sf_count_t count, void* user) {
    auto* const file = static_cast<SoundFile*>(user);
    const auto end = static_cast<size_t>(file->at + count);
    if (file->bytes.size() < end) file->bytes.resize(end);
    std::memcpy(file->bytes.data() + file->at, from, static_cast<size_t>(count));
    file->at += count;
    return count;
  };
  io.tell = [](void* user) { return static_cast<SoundFile*>(user)->at; };
  return io;
}

}  // namespace

std::vector<uint8_t> ExifWithOrientation(uint8_t orientation) {
  return {'M', 'M',  0, 42, 0, 0, 0, 8,                          // header, directory at 8
          0,   2,                                                // entries
          1,   0x0F, 0, 2,  0, 0, 0, 2, 'x', 0,           0, 0,  // the maker's name
          1,   0x12, 0, 3,  0, 0, 0, 1, 0,   orientation, 0, 0,  // the orientation
          0,   0,    0, 0};                                      // no other directory
}

FileBytes EncodePng(uint32_t width, uint32_t height, std::vector<uint8_t> samples,
                    const PngOptions& options) {
  FileBytes file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &file, WritePng, nullptr);
  png_set_IHDR(png, info, width, height, options.depth, options.colour_type,
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (size_t i = 0; i + 2 < options.palette.size(); i += 3) {
    palette.push_back({options.palette[i], options.palette[i + 1], options.palette[i + 2]});
  }
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  std::vector<uint8_t> alpha = options.palette_alpha;
  if (!alpha.empty()) {
    png_set_tRNS(png, info, alpha.data(), static_cast<int>(alpha.size()), nullptr);
  }
  std::vector<uint8_t> exif = ExifWithOrientation(options.orientation);
  if (options.orientation != 0) {
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), exif.data());
  }
  std::vector<png_bytep> rows;
  rows.reserve(height);
  for (uint32_t y = 0; y < height; ++y) rows.push_back(&samples[y * (samples.size() / height)]);
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

FileBytes EncodeJpeg(uint32_t width, uint32_t height, std::vector<uint8_t> samples,
                     const JpegOptions& options) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = width;
  info.image_height = height;
  info.input_components = options.components;
  info.in_color_space = options.components == 1   ? JCS_GRAYSCALE
                        : options.components == 3 ? JCS_RGB
                                                  : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (options.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  if (!options.adobe) info.write_Adobe_marker = FALSE;
  jpeg_set_quality(&info, 100, TRUE);
  if (options.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  if (options.orientation != 0) {
    std::vector<uint8_t> block = {'E', 'x', 'i', 'f', 0, 0};
    for (const uint8_t byte : ExifWithOrientation(options.orientation)) block.push_back(byte);
    jpeg_write_marker(&info, JPEG_APP0 + 1, block.data(), static_cast<unsigned>(block.size()));
  }
  while (info.next_scanline < height) {
    JSAMPROW row = &samples[info.next_scanline * (samples.size() / height)];
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  FileBytes file;
  Append(file, bytes, size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return file;
}

FileBytes EncodeBmp(uint32_t width, uint32_t height, std::span<const uint8_t> rows,
                    const BmpOptions& options) {
  constexpr uint32_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40;
  std::vector<uint8_t> file = {'B', 'M'};
  // Bytes after the fourth are zero.
  const auto put = [&file](uint32_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      file.push_back(i < sizeof(value) ? static_cast<uint8_t>(value >> (8 * i)) : 0);
    }
  };
  const bool core = options.header == kCoreHeader;
  const size_t entry = core ? 3 : 4;
  const auto colours = static_cast<uint32_t>(options.palette.size() / 3);
  const size_t masks_behind = options.header == kInfoHeader ? options.masks.size() * 4 : 0;
  const size_t pixels_at = kFileHeader + options.header + masks_behind + colours * entry;
  put(0, 8);  // the size of the file, which nobody reads
  put(static_cast<uint32_t>(pixels_at), 4);
  put(options.header, 4);
  put(width, core ? 2 : 4);
  put(options.top_down ? 0 - height : height, core ? 2 : 4);
  put(1, 2);
  put(options.bits, 2);
  if (!core) {
    put(options.compression, 4);
    put(0, 12);
    put(colours, 4);
    put(0, 4);
  }
  for (const uint32_t mask : options.masks) put(mask, 4);
  file.resize(kFileHeader + options.header + masks_behind);
  for (size_t i = 0; i < colours; ++i) {
    for (size_t c = 0; c < entry; ++c) file.push_back(c < 3 ? options.palette[3 * i + 2 - c] : 0);
  }
  const size_t row_bytes = rows.size() / height;
  for (uint32_t i = 0; i < height; ++i) {
    const uint32_t y = options.top_down ? i : height - 1 - i;
    const auto row = rows.subspan(y * row_bytes, row_bytes);
    file.insert(file.end(), row.begin(), row.end());
    file.resize(file.size() + (4 - row_bytes % 4) % 4);
  }
  FileBytes bytes;
  Append(bytes, file.data(), file.size());
  return bytes;
}

FileBytes EncodeWebp(uint32_t width, uint32_t height, std::span<const uint8_t> samples) {
  WebPConfig config;
  WebPPicture picture;
  WebPMemoryWriter writer;
  EXPECT_TRUE(WebPConfigInit(&config) && WebPPictureInit(&picture));
  WebPMemoryWriterInit(&writer);
  config.lossless = 1;
  config.exact = 1;  // colours of transparent pixels too
  picture.use_argb = 1;
  picture.width = static_cast<int>(width);
  picture.height = static_cast<int>(height);
  picture.writer = WebPMemoryWrite;
  picture.custom_ptr = &writer;
  EXPECT_TRUE(WebPPictureImportRGBA(&picture, samples.data(), static_cast<int>(width * 4)));
  EXPECT_TRUE(WebPEncode(&config, &picture));
  FileBytes file;
  Append(file, writer.mem, writer.size);
  WebPMemoryWriterClear(&writer);
  WebPPictureFree(&picture);
  return file;
}

FileBytes EncodeGif(uint32_t width, uint32_t height, std::vector<uint8_t> indices,
                    std::span<const uint8_t> colours, const GifOptions& options) {
  FileBytes file;
  GifColorType map[4] = {};
  for (size_t i = 0; i + 2 < colours.size(); i += 3) {
    map[i / 3] = {colours[i], colours[i + 1], colours[i + 2]};
  }
  GifFileType* const gif = EGifOpen(&file, WriteGif, nullptr);
  EGifSetGifVersion(gif, true);
  ColorMapObject* const colour_map = GifMakeMapObject(4, map);
  EXPECT_EQ(
      EGifPutScreenDesc(gif, static_cast<int>(width), static_cast<int>(height), 2, 0, colour_map),
      GIF_OK);
  GifFreeMapObject(colour_map);
  for (int i = 0; i < options.frames; ++i) {
    PutGifFrame(gif, width, height, indices, options);
    std::fill(indices.begin(), indices.end(), uint8_t{0});
  }
  EXPECT_EQ(EGifCloseFile(gif, nullptr), GIF_OK);
  return file;
}

FileBytes EncodeSound(int format, int rate, int channels, std::span<const float> samples) {
  SoundFile file;
  SF_VIRTUAL_IO io = SoundInMemory();
  SF_INFO info{};
  info.format = format;
  info.samplerate = rate;
  info.channels = channels;
  SNDFILE* const sound = sf_open_virtual(&io, SFM_WRITE, &info, &file);
  EXPECT_NE(sound, nullptr) << sf_strerror(nullptr);
  if (sound == nullptr) return {};
  EXPECT_EQ(sf_write_float(sound, samples.data(), static_cast<sf_count_t>(samples.size())),
            static_cast<sf_count_t>(samples.size()));
  sf_close(sound);
  return file.bytes;
}

}  // namespace rullama

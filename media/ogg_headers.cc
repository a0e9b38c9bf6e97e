#include "media/ogg_headers.h"

#include <ogg/ogg.h>
#include <vorbis/codec.h>

#include <algorithm>
#include <cstring>

#include "media/sound_mixer.h"

namespace rullama::media_internal {
namespace {

constexpr size_t kPiece = 4096;  // bytes that are handed to libogg at a time
constexpr int kVorbisHeaders = 3;
constexpr std::string_view kVorbis = "\1vorbis";

// The packets of the first stream of a file.
class OggPackets {
 public:
  explicit OggPackets(std::string_view file) : rest_(file) {
    ogg_sync_init(&sync_);
    ogg_stream_init(&stream_, 0);
  }
  OggPackets(const OggPackets&) = delete;
  OggPackets& operator=(const OggPackets&) = delete;
  ~OggPackets() {
    ogg_stream_clear(&stream_);
    ogg_sync_clear(&sync_);
  }

  // False at the end of the file, and where a part of a packet is missing.
  bool Next(ogg_packet& packet) {
    for (;;) {
      const int found = begun_ ? ogg_stream_packetout(&stream_, &packet) : 0;
      if (found != 0) return found > 0;
      if (!NextPage()) return false;
    }
  }

 private:
  bool NextPage() {
    ogg_page page{};
    for (;;) {
      const int found = ogg_sync_pageout(&sync_, &page);
      if (found < 0) return false;  // bytes that are not a page
      if (found > 0 && TakePage(page)) return true;
      if (found == 0 && !Feed()) return false;
    }
  }
  // Whether the page is one of the first stream.
  bool TakePage(ogg_page& page) {
    if (!begun_) ogg_stream_reset_serialno(&stream_, ogg_page_serialno(&page));
    begun_ = true;
    return ogg_stream_pagein(&stream_, &page) == 0;
  }
  bool Feed() {
    const std::string_view piece = rest_.substr(0, kPiece);
    if (piece.empty()) return false;
    char* const to = ogg_sync_buffer(&sync_, static_cast<long>(piece.size()));
    if (to == nullptr) return false;
    std::memcpy(to, piece.data(), piece.size());
    rest_.remove_prefix(piece.size());
    return ogg_sync_wrote(&sync_, static_cast<long>(piece.size())) == 0;
  }

  std::string_view rest_;
  ogg_sync_state sync_{};
  ogg_stream_state stream_{};
  bool begun_ = false;
};

struct VorbisHeaders {
  VorbisHeaders() {
    vorbis_info_init(&info);
    vorbis_comment_init(&comment);
  }
  VorbisHeaders(const VorbisHeaders&) = delete;
  VorbisHeaders& operator=(const VorbisHeaders&) = delete;
  ~VorbisHeaders() {
    vorbis_comment_clear(&comment);
    vorbis_info_clear(&info);
  }

  vorbis_info info{};
  vorbis_comment comment{};
};

}  // namespace

Status CheckOggHeaders(std::string_view file) {
  OggPackets packets(file);
  VorbisHeaders headers;
  for (int i = 0; i < kVorbisHeaders; ++i) {
    ogg_packet packet{};
    if (!packets.Next(packet)) return DamagedSound("it ends inside its headers");
    const std::string_view bytes(reinterpret_cast<const char*>(packet.packet),
                                 static_cast<size_t>(std::max(packet.bytes, 0L)));
    if (i == 0 && !bytes.starts_with(kVorbis)) return OkStatus();
    if (vorbis_synthesis_headerin(&headers.info, &headers.comment, &packet) != 0) {
      return DamagedSound("its headers are not those of Vorbis");
    }
  }
  return OkStatus();
}

}  // namespace rullama::media_internal

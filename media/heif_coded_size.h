// The sizes of the coded pictures in a file of HEIC or AVIF, which its header may deny: they decide
// what decoding takes, and libheif does not tell them before it decodes.
//
// They are in the parameter sets of HEVC and the sequence headers of AV1, in the boxes of the
// file's properties and at the places of its items, and in grids of tiles. Thread safety: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/status.h"
#include "media/heif_items.h"
#include "media/picture_decoders.h"

namespace rullama::media_internal {

struct CodedSize {
  uint64_t width = 0;
  uint64_t height = 0;

  [[nodiscard]] uint64_t pixels() const { return width * height; }
  bool operator==(const CodedSize&) const = default;
};

// The sizes that decoding allocates, whatever the boxes with sizes say.
struct HeifSizes {
  CodedSize coded;                // the coded picture with the most pixels
  std::optional<CodedSize> grid;  // the largest picture of tiles
};

// Refuses what libheif 1.15 would read in another way, follow without an end or not compare. To be
// called before libheif sees the file.
[[nodiscard]] tl::expected<HeifSizes, HeifFault> ReadHeifSizes(Bytes file);

// The size in a sequence parameter set of HEVC, from its NAL header on, and in the payload of an
// OBU with a sequence header of AV1. Nothing if they end early.
[[nodiscard]] std::optional<CodedSize> SizeOfHevcSps(Bytes nal);
[[nodiscard]] std::optional<CodedSize> SizeOfAv1Sequence(Bytes payload);

}  // namespace rullama::media_internal

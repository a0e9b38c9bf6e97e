// The sizes of the coded pictures in a file of HEIC or AVIF, which its header may deny: they decide
// what decoding takes, and libheif does not tell them before it decodes.
//
// Looked at are the parameter sets of HEVC and the sequence headers of AV1, in the boxes of the
// file's properties and at the places of its items. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "media/picture_decoders.h"

namespace rullama::media_internal {

struct CodedSize {
  uint64_t width = 0;
  uint64_t height = 0;

  [[nodiscard]] uint64_t pixels() const { return width * height; }
  bool operator==(const CodedSize&) const = default;
};

// The coded picture with the most pixels; nothing if there is none, or if the boxes that lead to
// them are damaged.
[[nodiscard]] std::optional<CodedSize> LargestCodedSize(Bytes file);

// The size in a sequence parameter set of HEVC, from its NAL header on, and in the payload of an
// OBU with a sequence header of AV1. Nothing if they end early.
[[nodiscard]] std::optional<CodedSize> SizeOfHevcSps(Bytes nal);
[[nodiscard]] std::optional<CodedSize> SizeOfAv1Sequence(Bytes payload);

}  // namespace rullama::media_internal

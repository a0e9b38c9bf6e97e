// Encodes the pictures and sounds of one prompt when their rows are read, each of them once, and
// gives up what is not needed any more: a decoded medium when it has been encoded, its soft tokens
// when all of its rows have been read.
//
// Ownership: shares the decoded media with the other jobs of a request. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/soft_rows.h"
#include "engine/media_encoder.h"
#include "engine/prompt_media.h"

namespace rullama {

class PromptEncoder {
 public:
  PromptEncoder() = default;  // of a prompt without media
  // `rows`: where the media stand in the prompt (SoftRowsOf), as many as there are media.
  PromptEncoder(std::vector<PlacedMedium> media, std::vector<SoftRows> rows);
  PromptEncoder(PromptEncoder&&) noexcept = default;
  PromptEncoder& operator=(PromptEncoder&&) noexcept = default;

  // The places of all media, ascending. Those that are held encoded have values.
  [[nodiscard]] const std::vector<SoftRows>& rows() const { return rows_; }

  // Encodes the media with rows in [first, end) that have not been encoded. Returns whether there
  // are media with rows there. Errors: those of MediaEncoder::Encode.
  Result<bool> Encode(MediaEncoder& encoder, int64_t first, int64_t end);

  // Gives up the media all of whose rows are in front of `end`; they are not read again.
  void Drop(int64_t end);

 private:
  std::vector<PlacedMedium> media_;
  std::vector<SoftRows> rows_;
  std::vector<SoftTokens> soft_;  // by medium; empty unless it is encoded and has rows to be read
};

}  // namespace rullama

// The soft tokens of the pictures and sounds of one prompt, from the time at which their rows are
// read. Frees memory as soon as it is not needed: a decoded medium when its soft tokens are there,
// these when all of its rows have been read.
//
// Ownership: shares the decoded media with the other jobs of a request, and soft tokens with the
// MediaCache. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/soft_rows.h"
#include "engine/media/media_encoder.h"
#include "engine/media/prompt_media.h"

namespace rullama {

class PromptEncoder {
 public:
  PromptEncoder() = default;  // of a prompt without media
  // `rows`: where the media stand in the prompt (SoftRowsOf), as many as there are media.
  PromptEncoder(std::vector<PlacedMedium> media, std::vector<SoftRows> rows);
  PromptEncoder(PromptEncoder&&) noexcept = default;
  PromptEncoder& operator=(PromptEncoder&&) noexcept = default;

  // The places of all media, ascending. Those whose soft tokens are held have values.
  [[nodiscard]] const std::vector<SoftRows>& rows() const { return rows_; }

  // The index of the first medium with rows in [first, end) whose soft tokens are missing.
  [[nodiscard]] std::optional<size_t> Missing(int64_t first, int64_t end) const;
  // A medium whose soft tokens are missing.
  [[nodiscard]] const DecodedMedium& medium(size_t index) const { return *media_[index].medium; }
  // Takes the soft tokens of that medium.
  void Take(size_t index, std::shared_ptr<const SoftTokens> soft);

  // Gives up the media all of whose rows are before `end`; they are not read again.
  void Drop(int64_t end);

 private:
  std::vector<PlacedMedium> media_;
  std::vector<SoftRows> rows_;
  // By medium; null unless they are there and have rows to be read.
  std::vector<std::shared_ptr<const SoftTokens>> soft_;
};

}  // namespace rullama

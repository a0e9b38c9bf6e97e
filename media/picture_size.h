// The size to which a picture is brought before a model looks at it.
//
// A model sees square blocks, each of which becomes one soft token: a row that replaces an
// embedding. The picture is stretched so that it has whole blocks, nearly its own aspect ratio, and
// as many blocks as the budget allows. The formulas are those of get_aspect_ratio_preserving_size
// in transformers' image_processing_gemma4.py.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/status.h"

namespace rullama {

// The numbers of soft tokens that the models were trained with, the one of video frames first.
inline constexpr std::array<uint32_t, 5> kImageTokenBudgets = {70, 140, 280, 560, 1120};
inline constexpr uint32_t kDefaultImageTokens = 280;
inline constexpr uint32_t kVideoFrameTokens = 70;

// The budget for a picture of `width` x `height` pixels for which none is asked: the first one at
// which the picture is not made smaller, at most kDefaultImageTokens. Blocks have 48 x 48 pixels,
// as in all published models.
[[nodiscard]] uint32_t DefaultImageTokens(uint32_t width, uint32_t height);

struct BlockGrid {
  uint32_t columns = 0;
  uint32_t rows = 0;

  [[nodiscard]] uint32_t tokens() const { return columns * rows; }
  bool operator==(const BlockGrid&) const = default;
};

// The grid for a picture of `width` x `height` pixels with blocks of `side` x `side` and at most
// `budget` (> 0) soft tokens. Error media.shape if the picture is so narrow that no grid fits.
[[nodiscard]] Result<BlockGrid> FitToBudget(uint32_t width, uint32_t height, uint32_t budget,
                                            uint32_t side);

}  // namespace rullama

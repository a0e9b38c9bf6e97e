// The pictures and sounds of a request: decoding, and their places in the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/api/request.h"
#include "engine/loading/loaded_model.h"
#include "engine/media/media_budget.h"
#include "engine/media/prompt_media.h"
#include "models/common/model.h"

namespace rullama {

// Media in the order of the request, to be shared by the answers to it.
using DecodedMedia = std::vector<std::shared_ptr<const DecodedMedium>>;

struct MediaLimits {
  // Media of more soft tokens than these fit into no prompt; negative: any number.
  int64_t max_tokens = -1;
  MediaBudget* budget = nullptr;  // borrowed; null: memory is not limited
  std::stop_token stop = {};      // ends waiting and decoding
};

// The most soft tokens of a picture of these sides, of those that a tower has (`budgets`). `asked`:
// of the request or the configuration; 0: by the sides. A tower with a single number has it for
// every picture, whichever number of another model is asked for. Error usage.request for a number
// that the tower does not have. Pure function.
[[nodiscard]] Result<uint32_t> PictureBudget(std::span<const uint32_t> budgets, int64_t asked,
                                             uint32_t width, uint32_t height);

// Reads and decodes the media of a request, one after another, and scales each picture before the
// next one is decoded. Headers are looked at first, so that nothing is decoded of a request that
// has too much or something that no decoder knows. Blocks until the budget has room. Errors:
// usage.request for a medium that is not described as Medium says, media.unsupported for one that
// the model does not take, context.overflow for more tokens than the limit, those of
// DecodePicture, DecodeSound and PictureTower::Fit, run.cancelled, io.*. Thread safety: any thread.
Result<DecodedMedia> DecodeMedia(const LoadedModel& model, std::span<const Medium> media,
                                 const MediaLimits& limits = {});

// The same without pixels, samples and hashes, to count the tokens of a prompt. Of pictures only
// headers are read.
Result<DecodedMedia> MeasureMedia(const LoadedModel& model, std::span<const Medium> media,
                                  const MediaLimits& limits = {});

[[nodiscard]] MediumFacts FactsOf(const DecodedMedium& medium);

// A prompt that is given as text with the text that the model reads around each medium
// (MediaMarkers::before).
[[nodiscard]] std::string WithTextAroundMedia(const Model& model, std::string prompt);

// Puts the soft rows of all media, each between its markers, in place of the placeholders of
// `prompt`, and returns where they are. Errors: media.count for another number of placeholders,
// media.kind for a placeholder of another kind. Pure function.
Result<std::vector<PlacedMedium>> PlaceMedia(const Model& model, const Tokenizer& tokenizer,
                                             const DecodedMedia& media,
                                             std::vector<int32_t>& prompt);

}  // namespace rullama

// The pictures and sounds of a request: decoding, and their places in the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/api/request.h"
#include "engine/loaded_model.h"
#include "engine/prompt_media.h"
#include "models/common/model.h"

namespace rullama {

// Media in the order of the request, to be shared by the answers to it.
using DecodedMedia = std::vector<std::shared_ptr<const DecodedMedium>>;

// Reads and decodes the media of a request. Errors: usage.request for a medium that is not
// described as Medium says, media.unsupported for one that the model does not take, those of
// DecodePicture, DecodeSound and PictureTower::Fit, io.*. Pure function apart from the files.
Result<DecodedMedia> DecodeMedia(const LoadedModel& model, std::span<const Medium> media);

[[nodiscard]] MediumFacts FactsOf(const DecodedMedium& medium);

// Puts the soft rows of all media, each between its markers, in place of the placeholders of
// `prompt`, and returns where they are. Errors: media.count for another number of placeholders,
// media.kind for a placeholder of another kind. Pure function.
Result<std::vector<PlacedMedium>> PlaceMedia(const Model& model, const Tokenizer& tokenizer,
                                             const DecodedMedia& media,
                                             std::vector<int32_t>& prompt);

}  // namespace rullama

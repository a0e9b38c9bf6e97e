// What `rullama bench --image-tokens` measures: the encoding of a picture by the model's tower.
#pragma once

#include <cstdint>

#include "cli/traffic.h"
#include "core/base/status.h"
#include "engine/loaded_model.h"
#include "engine/prompt_media.h"

namespace rullama::cli {

// A picture of noise that fills a budget of `image_tokens` without being resampled. Errors:
// usage.option for a number that is no budget, media.unsupported for a model without a tower.
Result<DecodedMedium> MakeBenchPicture(const LoadedModel& model, int64_t image_tokens);

// The least traffic and work of encoding a picture of `tokens` soft tokens, with all of the tower's
// tensors read once. The model has a tower for pictures.
Traffic TrafficOfPicture(const LoadedModel& model, int64_t tokens);

}  // namespace rullama::cli

// The test of `rullama bench --image-tokens`: the encoding of a picture by the model's tower.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/ir/op_cost.h"
#include "engine/loading/loaded_model.h"
#include "engine/media/prompt_media.h"

namespace rullama::cli {

// A picture of noise that fills a budget of `image_tokens` without being resampled. Errors:
// usage.option for a number that is not a budget, media.unsupported for a model without a tower.
Result<DecodedMedium> MakeBenchPicture(const LoadedModel& model, int64_t image_tokens);

// Makes another picture of it, so that no run finds the pixels of the last one on the device.
void ChangePicture(DecodedMedium& medium);

// The seconds that the host takes to make the inputs of the tower from the pixels.
double SecondsToPrepare(const LoadedModel& model, const DecodedMedium& medium);

// The cost of encoding a picture of `tokens` soft tokens, with all of the tower's tensors read once
// and without the bytes of activations. The model has a tower for pictures.
OpCost CostOfPicture(const LoadedModel& model, int64_t tokens);

}  // namespace rullama::cli

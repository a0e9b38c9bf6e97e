// The losses of a training run as a picture. Pure function; thread-safe.
#pragma once

#include "core/drawing/picture.h"
#include "engine/api/training.h"

namespace rullama {

// The file of it in the output folder of a run.
inline constexpr const char* kLossPlot = "loss.svg";

// Training and validation over the steps. Of a long run, each point of training is the mean over
// some steps.
drawing::Picture LossPlot(const LossHistory& history);

}  // namespace rullama

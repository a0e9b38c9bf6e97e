// The losses of a training run as a picture. Pure function; thread-safe.
#pragma once

#include "cli/reports/picture.h"
#include "engine/api/training.h"

namespace rullama::cli {

// Training and validation over the steps. Of a long run, each point of training is the mean over
// some steps.
Picture LossPlot(const LossHistory& history);

}  // namespace rullama::cli

// The part of `rullama diff` for training: the gradients of one step on several backends.
#pragma once

#include <string>
#include <vector>

#include "cli/commands/options.h"
#include "cli/terminal/console.h"
#include "core/base/status.h"

namespace rullama::cli {

// Compares loss and gradients of the first step of training.data, with A and B drawn by
// training.seed, and writes a report for each backend but the baseline. Returns the exit code: that
// of a threshold if diff.nmse is exceeded. Errors: those of LoadModel and TrainingSetup.
Result<int> DiffTraining(const ConfigFlags& flags, const std::vector<std::string>& backends,
                         bool json, Console& console);

}  // namespace rullama::cli

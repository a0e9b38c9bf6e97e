// Describes a placement in words.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/console.h"
#include "core/passes/placement.h"

namespace rullama::cli {

// Notes how many ops run on each device, and which left the main one or were decomposed: one line
// for each kind of op and reason, with the first op concerned. `names` are the names of the
// devices.
void DescribePlacement(const PlacementReport& report, const std::vector<std::string>& names,
                       Console& console);

}  // namespace rullama::cli

// What a placement did, in words.
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "core/passes/placement.h"

namespace rullama::cli {

// How many ops run on each device, and which left the main one or were decomposed, as notes: one
// line for each kind of op and reason, with the first op it happened to. `names` are those of the
// devices.
void DescribePlacement(const PlacementReport& report, const std::vector<std::string>& names,
                       Console& console);

}  // namespace rullama::cli

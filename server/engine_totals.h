// Sums of what several engines count, those included that have been closed. Pure functions.
#pragma once

#include "engine/api/stats.h"

namespace rullama::server {

// Adds the counts and times, which only grow while an engine lives.
void AddTotals(EngineStats& sum, const EngineStats& stats);
// Adds the values of this moment.
void AddMoment(EngineStats& sum, const EngineStats& stats);

}  // namespace rullama::server

// Rotates what caches of block types hold: keys, and the queries that meet them, and values, whose
// mixture is turned back. A Walsh-Hadamard transform keeps scalar products and spreads large values
// over the head, so that blocks of 32 quantise with less error. Rows are rotated before the `cast`
// that quantises them, so a state holds rotated rows whoever reads it: every graph of a session has
// to pass here. Heads that a transform does not fit stay as they are. Pure; thread-safe.
#pragma once

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

Result<Graph> RotateCaches(const Graph& graph);

}  // namespace rullama

// The graph a plugin receives, as a Graph again: the inverse of core/plugin/graph_flatten.h.
#pragma once

#include <rullama/sdk/backend.h>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama::reference {

// Copies what it needs; ids of values and ops stay the same. A constant's source is its own name.
// Values the host reads (outputs, or observed) become outputs of that name with all their rows. The
// result is verified. Errors: ref.graph for a graph that breaks the plugin contract, and those of
// Verify.
Result<Graph> GraphFromAbi(const sdk::GraphView& view);

}  // namespace rullama::reference

// Converts the graph that a plugin receives back to a Graph: the inverse of
// core/plugin/graph_flatten.h.
#pragma once

#include <rullama/sdk/backend.h>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama::reference {

// The result owns its data and is verified; ids of values and ops are the same. The source of a
// constant is its name. Values that the host reads (outputs, or observed) become outputs of that
// name with all their rows. Errors: ref.graph for a graph that breaks the plugin contract, and
// those of Verify.
Result<Graph> GraphFromAbi(const sdk::GraphView& view);

}  // namespace rullama::reference

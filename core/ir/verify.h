// Checks every rule of the IR on a whole graph. Runs after build and, in Debug and CI builds
// (RULLAMA_VERIFY_PASSES), after every pass.
#pragma once

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// Errors: ir.structure (ids, order, producers, duplicate names), ir.type (types differ from what
// the op infers), ir.state (a state with two appends, or a reader of an old version after its
// append), ir.output. Messages name op and value.
Status Verify(const Graph& graph);

}  // namespace rullama

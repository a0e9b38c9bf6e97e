// Computes only the rows somebody asks for. A model is written on all T rows of a step; this pass
// finds, from the outputs and the states backwards, which values are needed at the R wanted rows
// only, and lets the ops that compute them run on R rows. Where a value of all rows meets an op on
// R rows, one gather_rows picks them. How demand flows through an op is its row map in ops.def, so
// the pass knows no model: in a prefill chunk of a model whose last layers share the cache of
// earlier ones, everything behind the last layer that writes a cache runs on R rows.
//
// A value is indexed by rows if its dimension 0 is T. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

enum class DemandMode : uint8_t {
  kAsAsked,    // each output as it asks: wanted rows, or all
  kAllRows,    // every output at all T rows; the input "rows" goes
  kStateOnly,  // no outputs: only what the states need (a prefill chunk that is not the last)
};

// The result has no dead ops. Outputs say kAll where they have all rows; if none has chosen rows,
// the graph has no input of wanted rows any more. Gathered values are named "<value>/rows".
// Error passes.no_rows_input: an output asks for wanted rows, but no input names them.
Result<Graph> ApplyRowDemand(const Graph& graph, DemandMode mode);

}  // namespace rullama

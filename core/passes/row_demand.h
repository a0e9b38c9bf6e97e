// Restricts ops to the rows that are needed. A model is written for all T rows of a step; this pass
// finds, backwards from the outputs and states, which values are needed at the R wanted rows only,
// and runs the ops that compute them on R rows. Where an op on R rows reads a value of T rows, one
// gather_rows selects them. ops.def defines how demand passes through an op, so the pass is
// independent of the model. Example: in a prefill chunk of a model whose last layers share the
// cache of earlier ones, everything after the last layer that writes a cache runs on R rows.
//
// A gather_rows of the input "rows" in the source graph counts as a demand of the wanted rows of
// its table. So ops that follow the wanted rows of a value may read inputs of R rows.
//
// A value is indexed by rows if its dimension 0 is T. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "core/ir/graph.h"

namespace rullama {

enum class DemandMode : uint8_t {
  kPerOutput,  // each output at the rows it demands: wanted rows or all rows
  kAllRows,    // every output at all T rows; the input "rows" is removed
  kStateOnly,  // no outputs: only what the states need (a prefill chunk that is not the last)
};

// The result has no dead ops. Outputs with all rows have the demand kAll; if no output has wanted
// rows, the input of wanted rows is removed. Gathered values are named "<value>/rows".
// Error passes.no_rows_input: an output demands wanted rows, but the graph has no input for them.
Result<Graph> ApplyRowDemand(const Graph& graph, DemandMode mode);

// Whether an op gathers the wanted rows of a value that is indexed by rows, as they are.
bool GathersWantedRows(const Graph& graph, const Op& op);
// Adds the rows `rows` of `table`, in its type. They are named after `value`: "<value>/rows".
ValueId GatherWantedRows(GraphBuilder& builder, const Value& value, ValueId table, ValueId rows);

}  // namespace rullama

// Cuts a scheduled graph into segments, maximal runs of ops on one device; on request also before
// the ops at its end that run on wanted rows only. A value that a later segment reads becomes an
// output of its segment and an input of the reader, both with the name of the value. Pure;
// thread-safe.
#pragma once

#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

struct Segment {
  int device = 0;
  // Its ops run on wanted rows only: the rows of its step are the wanted ones, and its bounds of T
  // and R are those of R.
  bool wanted_only = false;
  // A self-contained graph. Inputs are those of the whole graph and the imports; outputs are those
  // of the whole graph that are computed here and the exports, each a separate value. States have
  // the name of their first version in every segment. Segment outputs have the demand kAll: they
  // are read as computed.
  Graph graph;
};

// Returns the segments in execution order. Errors: passes.state_split if the ops of one state are
// on several devices; passes.output_name if two values would cross under one name;
// passes.output_leaf if an output is not computed by an op or is the same value as another, which
// Canonicalise() prevents.
Result<std::vector<Segment>> Partition(const Graph& graph, bool wanted_rows_apart = false);

}  // namespace rullama

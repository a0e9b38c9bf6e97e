// Cuts a scheduled graph into segments, maximal runs of ops on one device. What a segment needs
// from an earlier one becomes an input of that name, what it gives to a later one an output named
// like the value. Pure; thread-safe.
#pragma once

#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

struct Segment {
  int device = 0;
  // Self-contained. Inputs are those of the whole graph and the imports; outputs are those of the
  // whole graph that are computed here, and the exports; each is a value of its own. States carry
  // the name of their first version in every segment, whichever version is read. Segment outputs
  // say kAll: they are read as computed.
  Graph graph;
};

// Segments in the order they run in. Errors: passes.state_split if the ops of one state are on
// several devices; passes.output_name if two values would cross under one name; passes.output_leaf
// if an output is not computed by an op or is the same value as another (Canonicalise sees to it).
Result<std::vector<Segment>> Partition(const Graph& graph);

}  // namespace rullama

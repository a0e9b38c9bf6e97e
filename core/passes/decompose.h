// Replaces composite ops by simpler ones, so that a backend with a dozen primitives can run every
// model. ops.def documents each composite; the decompositions express that documentation in ops.
//
// In a decomposition, an op that replaces a result takes its name, others are named
// "<first result>/<part>". A decomposition may contain composites again (residual_norm contains
// rms_norm); repeated until nothing changes, only primitives are left. Pure; thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// True for exactly the ops with the trait composite.
bool HasDecomposition(OpKind kind);

// Replaces each op with refused[index of op] that has a decomposition; others stay. `refused` is
// parallel to graph.ops.
Result<Graph> Decompose(const Graph& graph, const std::vector<bool>& refused);

// Decomposes each composite for which `where` holds, also of those that take its place, until it
// holds for none.
Result<Graph> DecomposeWhere(Graph graph,
                             const std::function<bool(const Graph& graph, const Op& op)>& where);

// Decomposes every composite, until only primitives are left.
Result<Graph> DecomposeAll(const Graph& graph);

}  // namespace rullama

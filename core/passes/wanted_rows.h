// Makes the part of a step that runs on its wanted rows only a step that decodes. In a chunk of a
// prompt that part is most of the layers of a model whose last layers share the caches of earlier
// ones (row_demand.h). Their attention reads the rows of the chunk and the older ones of a cache.
// If the wanted rows are the last of their slots, it may as well read the cache after the chunk was
// appended, and the wanted row itself. Then nothing in that part depends on the number of rows of
// the chunk, and it can be a segment of its own (partition.h), which devices run as they run a step
// of few rows. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// Whether steps up to the largest one read prompts. Shorter ones decode, maybe for several slots,
// and stay in one piece.
constexpr bool ReadsPrompts(const Extents& largest) {
  constexpr int64_t kMinRows = 32;
  return largest.t >= kMinRows && largest.r > 0 && largest.r < largest.t;
}

// Whether an operand or a result of the op has a row for each row of the step.
bool NeedsAllRows(const Graph& graph, const Op& op);

// The number of ops at the end of the graph that need no row but the wanted ones.
size_t CountLastWantedOps(const Graph& graph);

// Returns the graph with ops on wanted rows that read the caches after the step's rows were
// appended. A new input "past_of_wanted", i32[slots] as "past", has the number of rows of each slot
// before its last one. The result computes the same for steps that want the last rows of their
// slots, each once, at positions below FewestUnwindowedRows(), if caches hold the rows of a step as
// they are: keys and values that are rounded when they are appended would be rounded for these ops
// too. The graph stays as it is if one of the ops reads a cache to which the graph does not append
// the same rows, or that is shorter than its window.
Result<Graph> DecodeWantedRows(const Graph& graph);

// The rows of the shortest cache that an attention reads without a window: beyond them it would
// have wrapped. The largest number if there is none.
int64_t FewestUnwindowedRows(const Graph& graph);

}  // namespace rullama

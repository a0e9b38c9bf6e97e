// All passes in their fixed order: canonicalise, row demand, wanted rows (of a prompt),
// differentiate (of a training graph), placement (which decomposes what devices refuse), schedule,
// partition, memory plan. With RULLAMA_VERIFY_PASSES the verifier runs after each. Pure except for
// the queries and dumps that it calls; thread-safe if those are.
//
// The folder: one pass per file, and graph_rewriter.h, which passes that rewrite ops share. adapt.h
// is a pass on finished graphs that runs before all others. Where several devices share a model
// (docs/adr/0016), layers.h finds the layer of each op and the places where the graph can be cut,
// and layer_split.h divides the layers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"
#include "core/passes/bucket.h"
#include "core/passes/differentiate.h"
#include "core/passes/memory_plan.h"
#include "core/passes/placement.h"

namespace rullama {

struct PipelineOptions {
  Bucket bucket;
  std::optional<Differentiation> differentiation;  // of a training graph
  PlacementPolicy policy;
  // If the graph has enough ops that run on the few wanted rows of a prompt's step, they become a
  // segment of their own (wanted_rows.h).
  bool wanted_rows_apart = false;
  std::vector<ArenaLimits> arenas;  // by device
  // Called with the graph after each pass ("canonicalise", "row_demand", "wanted_rows" and
  // "differentiate" if there is one, "placement", "schedule"), and once for each segment
  // ("segment"). May be empty.
  std::function<void(std::string_view pass, const Graph&)> dump;
};

struct PlannedSegment {
  int device = 0;
  bool wanted_only = false;  // Segment::wanted_only
  Graph graph;
  MemoryPlan memory;
};

// Segments in execution order; partition.h describes how values pass between them.
struct Program {
  std::vector<PlannedSegment> segments;
  PlacementReport report;
  // It computes the outputs of steps that want the last rows of their slots, each once, and not
  // those of other steps (DecodeWantedRows).
  bool wants_last_rows = false;
};

// Errors of the passes, with the name of the pass as context; passes.bounds for max_t or max_r out
// of range.
Result<Program> BuildProgram(const Graph& graph, const SupportQuery& query,
                             const PipelineOptions& options);

}  // namespace rullama

#include "core/passes/pipeline.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/ir/verify.h"
#include "core/passes/canonicalise.h"
#include "core/passes/partition.h"
#include "core/passes/rotate_caches.h"
#include "core/passes/schedule.h"
#include "core/passes/wanted_rows.h"

namespace rullama {
namespace {

#if defined(RULLAMA_VERIFY_PASSES)
constexpr bool kVerify = true;
#else
constexpr bool kVerify = false;
#endif

tl::unexpected<Error> InPass(std::string_view pass, Error error) {
  return tl::unexpected<Error>(std::move(error).WithContext(fmt::format("pass {}", pass)));
}

// Passes a finished graph to the dump and, if enabled, to the verifier.
Status Checkpoint(std::string_view pass, const Graph& graph, const PipelineOptions& options) {
  if (options.dump) options.dump(pass, graph);
  if constexpr (kVerify) {
    if (Status status = Verify(graph); !status) {
      return InPass(fmt::format("{} left a bad graph", pass), std::move(status).error());
    }
  }
  return OkStatus();
}

Result<Graph> Finished(std::string_view pass, Result<Graph> graph, const PipelineOptions& options) {
  if (!graph) return InPass(pass, std::move(graph).error());
  RL_RETURN_IF_ERROR(Checkpoint(pass, *graph, options));
  return graph;
}

// The graph whose ops on wanted rows can be cut off, or none if they are not worth it.
Result<std::optional<Graph>> WithWantedRowsApart(const Graph& graph,
                                                 const PipelineOptions& options) {
  // Some three layers. Another plan has to be compiled for them.
  constexpr size_t kMinOps = 48;
  if (!options.wanted_rows_apart || options.differentiation || !ReadsPrompts(graph.MaxExtents())) {
    return std::nullopt;
  }
  RL_ASSIGN_OR_RETURN(Graph decoding, DecodeWantedRows(graph));
  RL_ASSIGN_OR_RETURN(const Graph ordered, Schedule(decoding, /*wanted_rows_last=*/true));
  if (CountLastWantedOps(ordered) < kMinOps) return std::nullopt;
  return decoding;
}

Result<PlannedSegment> PlanSegment(Segment segment, const PipelineOptions& options) {
  const auto device = static_cast<size_t>(segment.device);
  if (device >= options.arenas.size()) {
    return MakeError(ErrorKind::kRuntime, "passes.devices",
                     "no arena limits are given for device {}, only for {} devices", segment.device,
                     options.arenas.size());
  }
  RL_RETURN_IF_ERROR(Checkpoint("segment", segment.graph, options));
  const ArenaLimits& limits = options.arenas[device];
  RL_ASSIGN_OR_RETURN(MemoryPlan memory, PlanMemory(segment.graph, limits));
  if constexpr (kVerify) {
    RL_RETURN_IF_ERROR(VerifyMemoryPlan(segment.graph, memory, limits.alignment));
  }
  return PlannedSegment{segment.device, segment.wanted_only, std::move(segment.graph),
                        std::move(memory)};
}

}  // namespace

Result<Program> BuildProgram(const Graph& graph, const SupportQuery& query,
                             const PipelineOptions& options) {
  const auto& [max_t, max_r, demand] = options.bucket;
  if (max_t < 1 || max_r < 0 || max_r > max_t) {
    return MakeError(ErrorKind::kRuntime, "passes.bounds",
                     "max T = {} and max R = {}; expected 1 <= T and 0 <= R <= T", max_t, max_r);
  }
  RL_ASSIGN_OR_RETURN(Graph current, Finished("canonicalise", Canonicalise(graph), options));
  RL_ASSIGN_OR_RETURN(current, Finished("rotate_caches", RotateCaches(current), options));
  current.max_t = max_t;
  current.max_r = demand == DemandMode::kPerOutput ? max_r : 0;
  RL_ASSIGN_OR_RETURN(current, Finished("row_demand", ApplyRowDemand(current, demand), options));

  auto decoding = WithWantedRowsApart(current, options);
  if (!decoding) return InPass("wanted_rows", std::move(decoding).error());
  const bool apart = decoding->has_value();
  if (apart) {
    RL_ASSIGN_OR_RETURN(current, Finished("wanted_rows", *std::move(*decoding), options));
  }

  if (options.differentiation) {
    RL_ASSIGN_OR_RETURN(
        current,
        Finished("differentiate", Differentiate(current, *options.differentiation), options));
  }

  auto placement = PlaceOps(current, query, options.policy);
  if (!placement) return InPass("placement", std::move(placement).error());
  RL_RETURN_IF_ERROR(Checkpoint("placement", placement->graph, options));
  RL_ASSIGN_OR_RETURN(current, Finished("schedule", Schedule(placement->graph, apart), options));

  auto segments = Partition(current, apart);
  if (!segments) return InPass("partition", std::move(segments).error());
  Program program;
  program.report = std::move(placement->report);
  program.wants_last_rows = apart;
  for (Segment& segment : *segments) {
    RL_ASSIGN_OR_RETURN(PlannedSegment planned, PlanSegment(std::move(segment), options));
    program.segments.push_back(std::move(planned));
  }
  return program;
}

}  // namespace rullama

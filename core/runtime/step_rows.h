// The rows of one step of a session, the graph that it runs, and the bounds of all steps. Value
// types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/passes/row_demand.h"

namespace rullama {

// Upper bounds of a session's steps. Plans and I/O buffers are made for these sizes.
struct StepLimits {
  int64_t max_t = 512;  // rows of a step (T) of a graph that has no buckets of its own
  int64_t max_r = 1;    // wanted rows of a step (R) with DemandMode::kPerOutput
};

// Names a graph of a session: its place in the list of which the session was made. Whoever makes
// the list hands out the handles. By default the first graph, which many sessions have alone.
struct GraphHandle {
  size_t index = 0;
  friend bool operator==(GraphHandle, GraphHandle) = default;
};

// tokens, pos and slot have the same length, 1 to the largest bucket of the graph. The rows of a
// slot have consecutive ascending positions that continue its past.
struct StepRows {
  GraphHandle graph = {};
  DemandMode demand = DemandMode::kPerOutput;
  std::vector<int32_t> tokens;
  std::vector<int32_t> pos;
  std::vector<int32_t> slot;
  std::vector<int32_t> wanted;  // indices into the rows; only with DemandMode::kPerOutput

  // One row per token, at positions past, past + 1, ... of `slot`. With DemandMode::kPerOutput the
  // last row is wanted.
  static StepRows Consecutive(std::span<const int32_t> tokens, int32_t past, int32_t slot,
                              DemandMode demand, GraphHandle graph = {});
  // The same in place of the rows of this object, whose memory is reused; `graph` is kept.
  void SetConsecutive(std::span<const int32_t> new_tokens, int32_t past, int32_t slot_of_all,
                      DemandMode new_demand);
  // The wanted rows alone, each of which is wanted.
  [[nodiscard]] StepRows AtWanted() const;
};

}  // namespace rullama

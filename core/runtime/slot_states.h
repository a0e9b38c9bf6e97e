// The states of a session's graphs that hold rows of slots: KV caches and the token history of a
// sampler. This table is the only place that knows how such a state is laid out.
//
// A state of type [slots, rows, ...] belongs to slots if a graph that extends the past appends to
// it at the inputs "pos" and "slot". The row of position p lies at p mod `rows`, so each state is a
// ring. A state with as many rows as a slot has positions never wraps.
//
// Pure functions, safe from any thread. Error snapshot.state (kRuntime): a graph that extends the
// past appends to a state in another way, so what a slot holds is not known. The states of graphs
// that do not extend the past (what a canvas expects between two steps) are work in progress, not
// part of a sequence, and are left out. So are states that get values of wanted rows only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

struct SlotState {
  std::string name;
  std::string row_type;    // element type and shape of a row, as in "f16[1,256]"
  int64_t rows = 0;        // of each slot
  uint64_t row_bytes = 0;  // > 0
  size_t graph = 0;        // index of a graph that appends to it
  // The most rows that a query reads: its own position and those before it. A ring may have more.
  int64_t reach = 0;

  // Rows that hold something after `positions` positions were written from 0 on.
  [[nodiscard]] int64_t RowsAfter(int64_t positions) const { return std::min(positions, rows); }
  // Where the rows of a slot begin on the device; rows [0, n) are contiguous.
  [[nodiscard]] uint64_t OffsetOf(int32_t slot) const {
    return static_cast<uint64_t>(slot) * static_cast<uint64_t>(rows) * row_bytes;
  }
};

class SlotStates {
 public:
  // Adds the states of a graph that extends the past. `index` is its place in the session.
  Status AddGraph(const Graph& graph, size_t index, int64_t slots);

  [[nodiscard]] const std::vector<SlotState>& all() const { return states_; }
  // The fewest rows of a state: after this many positions a ring overwrites its oldest row.
  // kMaxRows without states.
  [[nodiscard]] int64_t shortest() const;
  // The most rows of a state: those with fewer are rings that wrap within a sequence.
  [[nodiscard]] int64_t longest() const;
  // The fewest rows that a ring has beyond those that a query reads; 0 without rings.
  [[nodiscard]] int64_t spare() const;

 private:
  // Takes the windows of the graph's attention into account.
  void LimitReach(const Graph& graph);

  std::vector<SlotState> states_;
};

}  // namespace rullama

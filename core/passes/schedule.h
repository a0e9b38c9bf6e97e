// Orders the ops of a placed graph: operands before users, each state_append after every reader of
// the version that it replaces (in any layer), and, with several devices, long runs of ops on one
// device, because every change of device costs a copy and a wait. An op of a later epoch stays
// after the op before it. On request the ops of a device that run on wanted rows only come after
// its others where they can (wanted_rows.h). Otherwise the old order is kept. Pure; thread-safe.
#pragma once

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// The ops of the input may be in any order in which operands come before users. Error passes.cycle:
// a reader of an old state version depends on the new one.
Result<Graph> Schedule(const Graph& graph, bool wanted_rows_last = false);

}  // namespace rullama

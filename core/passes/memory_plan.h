// Gives every transient of a segment its place in one arena. Values whose lives do not overlap
// share bytes. Lives are counted in ops of the graph's order and include both the op that computes
// a value and its last reader, so no op ever writes over its own operands.
//
// One exception, on purpose: the result of a reshape has the offset of its operand where both are
// transients and neither is an output. The bytes are the same, so a backend that sees equal offsets
// has nothing to do. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

struct MemoryPlan {
  // Parallel to graph.values; meaningful for transients that are no outputs (InArena), 0 for
  // others.
  std::vector<uint64_t> offset;
  uint64_t arena_bytes = 0;
};

// By value: whether it lives in the arena, that is, is a transient and no output.
std::vector<bool> InArena(const Graph& graph);

// Bytes of a value of this type. Error passes.size: negative or beyond 64 bits.
Result<uint64_t> CheckedBytes(const TensorType& type, const Extents& extents);

// A plan for the largest T and R. `alignment` (of every offset) is a power of two. Largest values
// first, each into the smallest gap that holds it. Errors: passes.size, passes.alignment.
Result<MemoryPlan> PlanMemory(const Graph& graph, uint64_t alignment);

// Checks a plan from first principles, by comparing all pairs of values; for tests and debug
// builds. Error passes.memory_plan names the values.
Status VerifyMemoryPlan(const Graph& graph, const MemoryPlan& plan, uint64_t alignment);

}  // namespace rullama

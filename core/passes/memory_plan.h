// Assigns every transient of a segment an offset in one arena, which is a row of buffers where the
// device limits their size. Values whose lifetimes do not overlap share bytes. A lifetime is a
// range of ops that includes both the op that computes the value and its last reader, so an op
// never overwrites its own operands.
//
// Exception: the result of a reshape has the offset of its operand if both are transients and
// neither is an output. The bytes are the same, so a backend that sees equal offsets copies
// nothing. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// The demands of a device on its arenas.
struct ArenaLimits {
  uint64_t alignment = 1;  // of every offset; a power of two
  uint64_t max_buffer_bytes = std::numeric_limits<uint64_t>::max();
};

struct MemoryPlan {
  // Parallel to graph.values; 0 for values that are not in the arena (InArena()).
  std::vector<uint64_t> offset;
  uint64_t arena_bytes = 0;
  // The arena's buffers have this size, and the last one the rest. No value crosses from one into
  // the next.
  uint64_t buffer_bytes = std::numeric_limits<uint64_t>::max();
};

// Per value: true if it is in the arena, that is, a transient that is not an output.
std::vector<bool> InArena(const Graph& graph);

// Bytes of a value of this type. Error passes.size: negative or beyond 64 bits.
Result<uint64_t> CheckedBytes(const TensorType& type, const Extents& extents);

// Plans for the largest T and R. Values are placed by descending size, each in the smallest gap
// that holds it. Errors: passes.size, passes.alignment; passes.buffer_size if a value is larger
// than a buffer of the device.
Result<MemoryPlan> PlanMemory(const Graph& graph, const ArenaLimits& limits);

// Verifies a plan by comparing all pairs of values; for tests and debug builds. Error
// passes.memory_plan names the values.
Status VerifyMemoryPlan(const Graph& graph, const MemoryPlan& plan, uint64_t alignment);

}  // namespace rullama

// Brings a graph into the one form the later passes expect: nothing dead, nothing computed twice,
// no op without effect on the numbers, each weight, input and state once, and every output the
// result of an op and a value of its own.
//
//  - equal constants (source, first row, type), inputs and states (name, type) become one value;
//  - equal ops (kind, device, operands, attributes) become one, so K = V models multiply once;
//  - casts to the same type, x * 1 + 0, copies, slices of everything and reshapes to the same shape
//    vanish; reshape of reshape and affine of affine become one op;
//  - an output that is a leaf of the graph, or the same value as another output, gets a copy: each
//    output has a buffer of its own, which is read after the step.
//
// Names are kept; values whose names would clash get "~2", "~3"... Pure; thread-safe.
#pragma once

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// Error passes.duplicate_name: two inputs or states of one name but different types.
Result<Graph> Canonicalise(const Graph& graph);

}  // namespace rullama

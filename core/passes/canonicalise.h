// Brings a graph into the form that the later passes expect: no dead or duplicate ops, no op that
// leaves its operand unchanged, each weight, input and state once, and every output a separate
// value that is the result of an op.
//
//  - equal constants (source, first row, type), inputs and states (name, type) become one value;
//  - equal ops (kind, device, operands, attributes) become one, so models with K = V multiply once;
//  - casts to the same type, x * 1 + 0, copies, slices of everything and reshapes to the same shape
//    vanish; reshape of reshape and affine of affine become one op;
//  - an output that is a leaf of the graph or the same value as another output gets a copy, because
//    each output has a separate buffer that is read after the step.
//
// Names are kept; values whose names would clash get "~2", "~3"... Pure; thread-safe.
#pragma once

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// Error passes.duplicate_name: two inputs or states of one name but different types.
Result<Graph> Canonicalise(const Graph& graph);

}  // namespace rullama

// Reverse-mode differentiation: appends to a graph the ops that compute the derivatives of a loss
// by its parameters. It knows no model; what it does with each op is one line of derivatives.def.
//
// A value is *active* if it depends on a parameter (or on a value whose gradient is asked for).
// Gradients exist for active values only, so nothing is computed below the first use of a
// parameter, nor for constants. Composites that have no derivative of their own are decomposed
// where they are active. Ops are differentiated in the reverse order of the graph, and the
// gradient of a value with several users is their sum in that order, so a step has one result.
// It runs after the row demand, and no row demand may run after it: results of one op may have R
// rows and T rows. Pure; thread-safe.
//
// Errors: train.no_derivative (an active op has none; the message names the op), train.value (a
// value that is named does not exist or has a wrong type), train.no_path (a parameter, or a value
// whose gradient is asked for, does not change the seeded values).
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ir/graph.h"

namespace rullama {

// The derivative of the loss by `value` is `gradient`, another value of the graph with the same
// shape. If the graph has no value of that name, it becomes an input.
struct GradientSeed {
  std::string value;
  std::string gradient;
};

// The loss and the parameters to differentiate it by; all values by name.
struct Differentiation {
  std::vector<GradientSeed> seeds;
  // States, matrices of products. The gradient of parameter P is added to the state GradientOf(P).
  std::vector<std::string> parameters;
  // Values whose gradients become the outputs GradientOf(value), f32.
  std::vector<std::string> observed;
  // The ends of the parts of the graph that are computed again for their derivatives, in the order
  // of the graph: part i reaches from checkpoints[i - 1] to checkpoints[i]. Of a part only what
  // other parts use is kept, and results that take much more time than memory: those of attention
  // and of products that are narrower than their operand. What precedes the first checkpoint or
  // follows the last one is kept.
  std::vector<std::string> checkpoints;
};

// The name of the gradient of a value: "NAME/grad".
std::string GradientOf(const std::string& name);

Result<Graph> Differentiate(const Graph& graph, const Differentiation& what);

}  // namespace rullama

// The decomposition of each composite op, by family. Internal to the passes.
#pragma once

#include <span>
#include <string>

#include "core/ir/builder.h"
#include "core/ir/op_structs.h"

namespace rullama::decompositions {

// One composite to be replaced: the graph under construction and the names of the op's results.
struct Site {
  GraphBuilder& b;
  std::span<const std::string> names;
  const std::string& name = names[0];

  [[nodiscard]] std::string Part(const char* part) const { return name + "/" + part; }
};

// One function for each composite, from ops.def; a composite without one fails to link. `op` has
// the operands in the graph under construction. Each returns what replaces the op's results.
#define RL_PRIMITIVE RL_NO_DECOMPOSITION
#define RL_EFFECT RL_NO_DECOMPOSITION
#define RL_COMPOSITE RL_DECOMPOSITION
#define RL_NO_DECOMPOSITION(Name)
#define RL_DECOMPOSITION(Name) ops::ResultOf<ops::Name> Name(const Site& s, const ops::Name& op);
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) traits(Name)
#include <rullama/abi/ops.def>
#undef RL_NO_DECOMPOSITION
#undef RL_DECOMPOSITION

// The exponentials of a softmax, shared with the losses: along the last dimension, exp(x - offset)
// with the maximum as the offset, and their sum. In a row of only -inf the offset is 0, every
// exponential is 0 and the divisor is 1.
struct Exponentials {
  ValueId offset;   // [..., 1]
  ValueId exp;      // as x
  ValueId divisor;  // [..., 1]
};
Exponentials AddExponentials(const Site& s, ValueId x);

}  // namespace rullama::decompositions

// The decomposition of each composite op, by family. Internal to the passes.
#pragma once

#include <string>

#include "core/ir/builder.h"
#include "core/ir/op_structs.h"

namespace rullama::decompositions {

// One composite to be replaced: the graph under construction and the name of the op's result.
struct Site {
  GraphBuilder& b;
  const std::string& name;

  [[nodiscard]] std::string Part(const char* part) const { return name + "/" + part; }
};

// One function for each composite, from ops.def; a composite without one fails to link. `op` has
// the operands in the graph under construction. Each returns the value that replaces the op's
// result.
#define RL_PRIMITIVE RL_NO_DECOMPOSITION
#define RL_EFFECT RL_NO_DECOMPOSITION
#define RL_COMPOSITE RL_DECOMPOSITION
#define RL_NO_DECOMPOSITION(Name)
#define RL_DECOMPOSITION(Name) ValueId Name(const Site& s, const ops::Name& op);
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) traits(Name)
#include <rullama/ir/ops.def>
#undef RL_NO_DECOMPOSITION
#undef RL_DECOMPOSITION

}  // namespace rullama::decompositions

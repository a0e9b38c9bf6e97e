// The decomposition of each composite op, by family. Internal to the passes.
#pragma once

#include <string>
#include <vector>

#include "core/ir/builder.h"
#include "core/ir/graph.h"

namespace rullama::decompositions {

// One composite to be replaced: the op (for its attributes), its operands in the graph under
// construction, and the name of its result.
struct Site {
  GraphBuilder& b;
  const Op& op;
  const std::vector<ValueId>& in;
  const std::string& name;

  [[nodiscard]] std::string Part(const char* part) const { return name + "/" + part; }
};

// Each returns the value that replaces the result of the op.
ValueId Softmax(const Site& s);
ValueId RmsNorm(const Site& s);
ValueId Softcap(const Site& s);
ValueId GeGlu(const Site& s);
ValueId GeGluLinear(const Site& s);
ValueId ResidualNorm(const Site& s);
ValueId Attention(const Site& s);
ValueId PleInject(const Site& s);
ValueId TopPMask(const Site& s);
ValueId MinPMask(const Site& s);
ValueId Entropy(const Site& s);
ValueId SoftEmbed(const Site& s);
ValueId MoeFfn(const Site& s);

}  // namespace rullama::decompositions

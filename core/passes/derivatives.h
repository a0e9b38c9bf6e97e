// The derivative of each op, by family. Internal to the passes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/ir/builder.h"
#include "core/ir/op_structs.h"

namespace rullama::derivatives {

// The contribution of one op to the gradient of an active operand.
struct Contribution {
  enum class Kind : uint8_t {
    kMissing,
    kGradient,  // `a`, f32 of the operand's shape
    kProduct,   // a^T b, summed over the rows; for operands that are parameters
    kNone,      // nothing: the result does not depend on it in a differentiable way
  };
  Kind kind = Kind::kMissing;
  ValueId a = kNoValue;
  ValueId b = kNoValue;
};

// One op that is differentiated, in the graph under construction. A rule gives each active operand
// its contribution; one that it leaves out makes the pass fail.
struct Site {
  GraphBuilder& b;
  std::string name;  // of the first result
  std::vector<ValueId> results = {};
  // Gradients of the results, f32; kNoValue where the loss does not depend on one.
  std::vector<ValueId> gradients = {};
  std::vector<bool> active = {};                 // by operand: whether it needs a gradient
  std::vector<Contribution> contributions = {};  // by operand

  // The gradient of the only result.
  [[nodiscard]] ValueId dy() const { return gradients[0]; }
  [[nodiscard]] bool Wants(size_t operand) const { return active[operand]; }
  void Give(size_t operand, ValueId gradient) {
    contributions[operand] = {Contribution::Kind::kGradient, gradient};
  }
  void GiveProduct(size_t operand, ValueId left, ValueId right) {
    contributions[operand] = {Contribution::Kind::kProduct, left, right};
  }
  void GiveNone(size_t operand) { contributions[operand] = {Contribution::Kind::kNone}; }

  [[nodiscard]] const TensorType& type(ValueId value) const { return b.graph().type(value); }
  [[nodiscard]] std::string Part(const char* part) const { return name + "/d." + part; }
};

// One function for each op with a rule. `op` has the operands in the graph under construction. It
// is called when some result has a gradient and some operand is active.
#define RL_RULE(Name) void Name(Site& s, const ops::Name& op);
#define RL_DECOMPOSED(Name)
#define RL_CONSTANT(Name)
#include "core/passes/derivatives.def"

}  // namespace rullama::derivatives

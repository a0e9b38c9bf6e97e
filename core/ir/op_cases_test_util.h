// A correct use and several wrong uses of every op, shared by the tests of inference, builder, text
// form and verifier.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/ir/graph.h"

namespace rullama::test {

struct OpUse {
  OpKind kind;
  OpAttrs attrs;
  std::vector<std::optional<TensorType>> operands;  // nothing: an absent optional operand
};

// A change that makes a use wrong, and a fragment that its error has to contain.
struct WrongUse {
  std::function<void(OpUse&)> change;
  std::string fragment;
};

struct OpCase {
  OpUse use;
  std::vector<TensorType> results;
  std::vector<WrongUse> wrong;
  // Changes a use whose optional operands go with something else so that one of them is absent.
  std::function<void(OpUse&)> leave_out = {};
};

// Rows for each op of the table; infer_test checks that none is missing.
const std::vector<OpCase>& OpCases();
std::vector<OpCase> StructureCases();
std::vector<OpCase> ArithmeticCases();
std::vector<OpCase> AttentionCases();
std::vector<OpCase> SamplingCases();
std::vector<OpCase> TrainingCases();
std::vector<OpCase> OptimizerCases();

// A graph of this one op: operands are inputs (states if the op writes them), results are outputs.
Graph GraphOf(const OpUse& use);

// f32 or i32 of these dims.
inline TensorType F(std::initializer_list<Dim> dims) { return {DType::kF32, dims}; }
inline TensorType I(std::initializer_list<Dim> dims) { return {DType::kI32, dims}; }
inline const Dim kT = Dim::T();

// Changes for WrongUse.
inline std::function<void(OpUse&)> Operand(size_t index, TensorType type) {
  return [=](OpUse& use) { use.operands[index] = type; };
}
inline std::function<void(OpUse&)> Absent(size_t index) {
  return [=](OpUse& use) { use.operands[index] = std::nullopt; };
}
template <typename Attrs>
std::function<void(OpUse&)> Attr(Attrs attrs) {
  return [=](OpUse& use) { use.attrs = OpAttrs(attrs); };
}

}  // namespace rullama::test

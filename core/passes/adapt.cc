#include "core/passes/adapt.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/ir/adapter_names.h"
#include "core/passes/decompose.h"
#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

using PairsByWeight = std::map<std::string, std::vector<const LowRankPair*>, std::less<>>;

// The adapters of the constant `id`, or null.
const std::vector<const LowRankPair*>* AdaptersOf(const Graph& graph, const PairsByWeight& pairs,
                                                  ValueId id) {
  if (id == kNoValue || graph.value(id).lifetime != Lifetime::kConstant) return nullptr;
  const auto found = pairs.find(graph.value(id).source);
  return found == pairs.end() ? nullptr : &found->second;
}

bool UsesAdapted(const Graph& graph, const PairsByWeight& pairs, const Op& op) {
  return std::ranges::any_of(op.inputs,
                             [&](ValueId id) { return AdaptersOf(graph, pairs, id) != nullptr; });
}

// The one adapter of the constant `id`, if it is one that composites may hold; otherwise null.
const LowRankPair* FusedAdapter(const Graph& graph, const PairsByWeight& pairs, ValueId id) {
  const auto* adapters = AdaptersOf(graph, pairs, id);
  if (adapters == nullptr || adapters->size() != 1) return nullptr;
  const LowRankPair& pair = *adapters->front();
  const bool fits = pair.lifetime == Lifetime::kConstant && pair.scale == 1.0F && pair.choices == 0;
  return fits ? &pair : nullptr;
}

// The only pair of the constant `id`, if rows choose among its adapters and a composite may hold
// it; otherwise null.
const LowRankPair* ChosenAdapter(const Graph& graph, const PairsByWeight& pairs, ValueId id) {
  const auto* adapters = AdaptersOf(graph, pairs, id);
  if (adapters == nullptr || adapters->size() != 1) return nullptr;
  const LowRankPair& pair = *adapters->front();
  return pair.choices > 0 && pair.scale == 1.0F ? &pair : nullptr;
}

// Whether an op becomes adapted_geglu_linear.
bool IsAdaptedGeGlu(const Graph& graph, const PairsByWeight& pairs, const Op& op) {
  using In = operands::GeGluLinear;
  return op.kind == OpKind::kGeGluLinear &&
         FusedAdapter(graph, pairs, op.inputs[In::gate_weight]) != nullptr &&
         FusedAdapter(graph, pairs, op.inputs[In::up_weight]) != nullptr;
}

// Whether an op becomes row_adapted_geglu_linear.
bool IsRowAdaptedGeGlu(const Graph& graph, const PairsByWeight& pairs, const Op& op) {
  using In = operands::GeGluLinear;
  if (op.kind != OpKind::kGeGluLinear) return false;
  const LowRankPair* gate = ChosenAdapter(graph, pairs, op.inputs[In::gate_weight]);
  const LowRankPair* up = ChosenAdapter(graph, pairs, op.inputs[In::up_weight]);
  return gate != nullptr && up != nullptr && gate->group == up->group && gate->places == up->places;
}

// Decomposes composites until none holds an adapted weight, except those that stay composites.
Result<Graph> DecomposeAround(Graph graph, const PairsByWeight& pairs) {
  return DecomposeWhere(std::move(graph), [&](const Graph& g, const Op& op) {
    return UsesAdapted(g, pairs, op) && !IsAdaptedGeGlu(g, pairs, op) &&
           !IsRowAdaptedGeGlu(g, pairs, op);
  });
}

class Adapter {
 public:
  Adapter(const Graph& graph, const PairsByWeight& pairs)
      : graph_(graph), pairs_(pairs), rewriter_(graph) {}

  Result<Graph> Run() && {
    for (const Op& op : graph_.ops) {
      if (IsAdaptedGeGlu(graph_, pairs_, op)) {
        RL_RETURN_IF_ERROR(GeGlu(op));
      } else if (IsRowAdaptedGeGlu(graph_, pairs_, op)) {
        RL_RETURN_IF_ERROR(RowAdaptedGeGlu(op));
      } else if (UsesAdapted(graph_, pairs_, op)) {
        RL_RETURN_IF_ERROR(Product(op));
      } else {
        rewriter_.Keep(op);
      }
    }
    rewriter_.KeepOutputs();
    return std::move(rewriter_).Finish();
  }

 private:
  struct Matrices {
    ValueId a = kNoValue, b = kNoValue;
  };

  // With the rows of B that belong to those of the weight.
  Matrices MatricesOf(const LowRankPair& pair, const Value& weight) {
    TensorType b_type = pair.BType();
    b_type.dim(0) = weight.type.dim(0);
    const ValueId a = Leaf(pair, pair.a, pair.AType(), 0);
    return {a, Leaf(pair, pair.b, b_type, weight.first_row)};
  }

  // The matrices of a weight that has a FusedAdapter().
  Result<Matrices> FusedMatrices(ValueId id) {
    const LowRankPair& pair = *FusedAdapter(graph_, pairs_, id);
    RL_RETURN_IF_ERROR(CheckFits(pair, graph_.value(id), /*grouped=*/false));
    return MatricesOf(pair, graph_.value(id));
  }

  Status Product(const Op& op) {
    const bool grouped =
        op.kind == OpKind::kGroupedMatMul && op.As<rl_grouped_matmul_attrs>().as_stored == 0;
    const bool linear =
        op.kind == OpKind::kMatMul && op.As<rl_matmul_attrs>().transpose_weight != 0;
    const auto at = grouped ? static_cast<size_t>(operands::GroupedMatMul::weight)
                            : static_cast<size_t>(operands::MatMul::weight);
    const auto* adapters = grouped || linear ? AdaptersOf(graph_, pairs_, op.inputs[at]) : nullptr;
    const std::string name = graph_.value(op.results[0]).name;
    if (adapters == nullptr) {
      return MakeError(ErrorKind::kRuntime, "adapt.op",
                       "op {} '{}' uses an adapted weight, expected matmul with a transposed "
                       "weight or grouped_matmul that is not as stored",
                       InfoOf(op.kind).name, name);
    }
    if (linear && FusedAdapter(graph_, pairs_, op.inputs[at]) != nullptr) return Linear(op);
    const Value& weight = graph_.value(op.inputs[at]);
    rewriter_.SetDevice(op.device);
    const std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    for (const LowRankPair* pair : *adapters) RL_RETURN_IF_ERROR(CheckFits(*pair, weight, grouped));
    if (adapters->front()->choices > 0) return RowAdapted(op, inputs, *adapters);
    GraphBuilder& b = rewriter_.builder();
    ValueId sum = b.Add(op.kind, inputs, op.attrs, name + "/base")[0];
    for (size_t i = 0; i < adapters->size(); ++i) {
      const LowRankPair& pair = *(*adapters)[i];
      const bool last = i + 1 == adapters->size();
      const std::string part = fmt::format("{}/lora{}", name, i);
      sum = b.Add(ops::Sum(sum, Delta(pair, weight, inputs, grouped, part)),
                  last ? name : part + ".sum");
    }
    rewriter_.Bind(op.results[0], sum);
    return OkStatus();
  }

  // A product whose rows choose, of each pair in turn.
  Status RowAdapted(const Op& op, const std::vector<ValueId>& inputs,
                    std::span<const LowRankPair* const> adapters) {
    using In = operands::MatMul;
    const std::string& name = graph_.value(op.results[0]).name;
    if (graph_.type(op.inputs[In::x]).rank != 2) {
      return MakeError(ErrorKind::kRuntime, "adapt.shape",
                       "op '{}' has no rows of one dimension, for which adapters are chosen", name);
    }
    GraphBuilder& b = rewriter_.builder();
    ValueId sum = kNoValue;
    for (size_t i = 0; i < adapters.size(); ++i) {
      const LowRankPair& pair = *adapters[i];
      const RowMatrices own = RowMatricesOf(pair);
      const bool last = i + 1 == adapters.size();
      const std::string summed = last ? name : fmt::format("{}/lora{}.sum", name, i);
      sum = i == 0 ? b.Add(ops::RowAdaptedLinear{.x = inputs[In::x],
                                                 .weight = inputs[In::weight],
                                                 .a = own.a,
                                                 .b = own.b,
                                                 .ids = own.ids,
                                                 .factors = own.factors},
                           summed)
                   : b.Add(ops::AdapterSum{.x = inputs[In::x],
                                           .base = sum,
                                           .a = own.a,
                                           .b = own.b,
                                           .ids = own.ids,
                                           .factors = own.factors},
                           summed);
    }
    rewriter_.Bind(op.results[0], sum);
    return OkStatus();
  }

  Status Linear(const Op& op) {
    using In = operands::MatMul;
    rewriter_.SetDevice(op.device);
    const std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    RL_ASSIGN_OR_RETURN(const Matrices adapter, FusedMatrices(op.inputs[In::weight]));
    Replace(op,
            ops::AdaptedLinear{
                .x = inputs[In::x], .weight = inputs[In::weight], .a = adapter.a, .b = adapter.b});
    return OkStatus();
  }

  Status GeGlu(const Op& op) {
    using In = operands::GeGluLinear;
    rewriter_.SetDevice(op.device);
    const std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    RL_ASSIGN_OR_RETURN(const Matrices gate, FusedMatrices(op.inputs[In::gate_weight]));
    RL_ASSIGN_OR_RETURN(const Matrices up, FusedMatrices(op.inputs[In::up_weight]));
    Replace(op, ops::AdaptedGeGluLinear{.x = inputs[In::x],
                                        .gate_weight = inputs[In::gate_weight],
                                        .gate_a = gate.a,
                                        .gate_b = gate.b,
                                        .up_weight = inputs[In::up_weight],
                                        .up_a = up.a,
                                        .up_b = up.b});
    return OkStatus();
  }

  Status RowAdaptedGeGlu(const Op& op) {
    using In = operands::GeGluLinear;
    rewriter_.SetDevice(op.device);
    const std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    const LowRankPair* const gate = ChosenAdapter(graph_, pairs_, op.inputs[In::gate_weight]);
    const LowRankPair* const up = ChosenAdapter(graph_, pairs_, op.inputs[In::up_weight]);
    RL_RETURN_IF_ERROR(CheckFits(*gate, graph_.value(op.inputs[In::gate_weight]), false));
    RL_RETURN_IF_ERROR(CheckFits(*up, graph_.value(op.inputs[In::up_weight]), false));
    const RowMatrices of_gate = RowMatricesOf(*gate), of_up = RowMatricesOf(*up);
    Replace(op, ops::RowAdaptedGeGluLinear{.x = inputs[In::x],
                                           .gate_weight = inputs[In::gate_weight],
                                           .gate_a = of_gate.a,
                                           .gate_b = of_gate.b,
                                           .up_weight = inputs[In::up_weight],
                                           .up_a = of_up.a,
                                           .up_b = of_up.b,
                                           .ids = of_gate.ids,
                                           .factors = of_gate.factors});
    return OkStatus();
  }

  // Adds `replacement` in the place of an op with one result.
  template <ops::OpStruct T>
  void Replace(const Op& op, const T& replacement) {
    const std::string& name = graph_.value(op.results[0]).name;
    rewriter_.Bind(op.results[0], rewriter_.builder().Add(replacement, name));
  }

  static Status CheckFits(const LowRankPair& pair, const Value& weight, bool grouped) {
    const TensorType& type = weight.type;
    const int rank = grouped ? 3 : 2;
    const bool whole = weight.first_row == 0 && type.dim(0).constant == pair.outputs;
    const bool rows_fit =
        grouped ? type.dim(0).constant == pair.experts && type.dim(1).constant == pair.outputs
                : pair.experts == 0 && weight.first_row >= 0 &&
                      weight.first_row + type.dim(0).constant <= pair.outputs;
    if (pair.rank < 1 || type.rank != rank || !rows_fit || type.last().constant != pair.inputs) {
      return MakeError(ErrorKind::kRuntime, "adapt.shape",
                       "the adapter of '{}' has {} inputs, {} outputs, rank {} and {} experts, the "
                       "weight is {}",
                       pair.weight, pair.inputs, pair.outputs, pair.rank, pair.experts,
                       ToString(type));
    }
    if (pair.choices > 0 && grouped) {
      return MakeError(ErrorKind::kRuntime, "adapt.shape",
                       "'{}' are weights of experts, for which rows choose no adapters",
                       pair.weight);
    }
    const bool parts_fit = pair.lifetime == Lifetime::kConstant && pair.choices == 0;
    if (grouped || whole || parts_fit) return OkStatus();
    return MakeError(ErrorKind::kRuntime, "adapt.rows",
                     "'{}' is used in parts of its rows, expected the whole weight where adapters "
                     "are states or rows choose them",
                     pair.weight);
  }

  // B (scale * A x). A x is narrow, so that its factor costs little, also that of its derivative.
  ValueId Delta(const LowRankPair& pair, const Value& weight, const std::vector<ValueId>& inputs,
                bool grouped, const std::string& name) {
    GraphBuilder& b = rewriter_.builder();
    const Matrices matrices = MatricesOf(pair, weight);
    const auto product = [&](ValueId x, ValueId matrix, const char* part) {
      if (!grouped) return b.Add(ops::Linear(x, matrix), name + part);
      const ValueId experts = inputs[operands::GroupedMatMul::experts];
      return b.Add(ops::GroupedMatMul{.x = x, .weight = matrix, .experts = experts}, name + part);
    };
    ValueId inner = product(inputs[grouped ? static_cast<size_t>(operands::GroupedMatMul::x)
                                           : static_cast<size_t>(operands::MatMul::x)],
                            matrices.a, ".a");
    if (pair.scale != 1.0F) {
      inner = b.Add(ops::Affine{.x = inner, .scale = pair.scale, .bias = 0}, name + ".scaled");
    }
    return product(inner, matrices.b, ".b");
  }

  // Matrices of a pair whose rows choose, and what they choose.
  struct RowMatrices {
    ValueId a = kNoValue, b = kNoValue, ids = kNoValue, factors = kNoValue;
  };

  RowMatrices RowMatricesOf(const LowRankPair& pair) {
    const Choice& choice = ChoiceOf(pair);
    return {.a = Leaf(pair, pair.a, pair.AType(), 0),
            .b = Leaf(pair, pair.b, pair.BType(), 0),
            .ids = choice.ids,
            .factors = Scaled(choice.factors, pair)};
  }

  struct Choice {
    ValueId ids = kNoValue, factors = kNoValue;
  };

  // The inputs that all pairs of a group share.
  const Choice& ChoiceOf(const LowRankPair& pair) {
    const auto [at, is_new] = choices_.try_emplace(pair.group);
    if (is_new) {
      GraphBuilder& b = rewriter_.builder();
      at->second = {
          b.Input(adapter_names::Ids(pair.group), {DType::kI32, {Dim::T(), pair.places}}),
          b.Input(adapter_names::Factors(pair.group), {DType::kF32, {Dim::T(), pair.places}})};
    }
    return at->second;
  }

  ValueId Scaled(ValueId factors, const LowRankPair& pair) {
    if (pair.scale == 1.0F) return factors;
    const auto [at, is_new] = scaled_.try_emplace(std::pair(pair.group, pair.scale));
    if (is_new) {
      at->second = rewriter_.builder().Add(
          ops::Affine{.x = factors, .scale = pair.scale, .bias = 0},
          fmt::format("{}.{}", adapter_names::Factors(pair.group), scaled_.size()));
    }
    return at->second;
  }

  // One value for each part of a matrix, however often it is used.
  ValueId Leaf(const LowRankPair& pair, const std::string& name, const TensorType& type,
               int64_t first_row) {
    const auto key = std::tuple(name, first_row, type.dim(0).constant);
    if (const auto found = leaves_.find(key); found != leaves_.end()) return found->second;
    GraphBuilder& b = rewriter_.builder();
    const ValueId leaf =
        pair.lifetime == Lifetime::kState ? b.State(name, type) : b.Constant(name, type, first_row);
    leaves_.emplace(key, leaf);
    return leaf;
  }

  const Graph& graph_;
  const PairsByWeight& pairs_;
  GraphRewriter rewriter_;
  std::map<std::tuple<std::string, int64_t, int64_t>, ValueId> leaves_;
  std::map<int64_t, Choice> choices_;                    // by group
  std::map<std::pair<int64_t, float>, ValueId> scaled_;  // factors, by group and scale
};

}  // namespace

TensorType LowRankPair::AType() const {
  if (choices > 0) return {DType::kF32, {choices, rank, inputs}};
  if (experts == 0) return {DType::kF32, {rank, inputs}};
  return {DType::kF32, {experts, rank, inputs}};
}

TensorType LowRankPair::BType() const {
  if (choices > 0) return {DType::kF32, {choices, outputs, rank}};
  if (experts == 0) return {DType::kF32, {outputs, rank}};
  return {DType::kF32, {experts, outputs, rank}};
}

Result<Graph> AdaptProducts(const Graph& graph, std::span<const LowRankPair> pairs) {
  PairsByWeight by_weight;
  for (const LowRankPair& pair : pairs) by_weight[pair.weight].push_back(&pair);
  RL_ASSIGN_OR_RETURN(const Graph products, DecomposeAround(graph, by_weight));
  return Adapter(products, by_weight).Run();
}

}  // namespace rullama

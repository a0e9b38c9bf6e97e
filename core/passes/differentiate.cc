#include "core/passes/differentiate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/passes/decompose.h"
#include "core/passes/derivatives.h"
#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

enum class Treatment : uint8_t { kRule, kDecomposed, kConstant, kRefused };

Treatment TreatmentOf(OpKind kind) {
  switch (kind) {
#define RL_TREAT(Name, treatment) \
  case OpKind::k##Name:           \
    return Treatment::treatment;
#define RL_RULE(Name) RL_TREAT(Name, kRule)
#define RL_DECOMPOSED(Name) RL_TREAT(Name, kDecomposed)
#define RL_CONSTANT(Name) RL_TREAT(Name, kConstant)
#include "core/passes/derivatives.def"
#undef RL_TREAT
    default:
      return Treatment::kRefused;
  }
}

void CallRule(derivatives::Site& site, OpKind kind, const std::vector<ValueId>& operands,
              const OpAttrs& attrs) {
  switch (kind) {
#define RL_RULE(Name)   \
  case OpKind::k##Name: \
    return derivatives::Name(site, ops::Read<ops::Name>(operands, attrs));
#define RL_DECOMPOSED(Name)
#define RL_CONSTANT(Name)
#include "core/passes/derivatives.def"
    default:
      RL_CHECK(false);
  }
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

tl::unexpected<Error> NoValue(std::string_view what, const std::string& name) {
  return MakeError(ErrorKind::kRuntime, "train.value", "the graph has no {} '{}'", what, name);
}

tl::unexpected<Error> NoPath(const std::string& name) {
  return MakeError(ErrorKind::kRuntime, "train.no_path",
                   "the loss does not depend on '{}', so it has no gradient", name);
}

// By value: whether it depends on a parameter or an observed value.
Result<std::vector<bool>> FindActive(const Graph& graph, const Differentiation& what) {
  std::vector<bool> active(graph.values.size(), false);
  for (const std::string& name : what.parameters) {
    const ValueId id = graph.Find(name);
    if (id == kNoValue || graph.value(id).lifetime != Lifetime::kState) {
      return NoValue("state", name);
    }
    active[id] = true;
  }
  for (const std::string& name : what.observed) {
    const ValueId id = graph.Find(name);
    if (id == kNoValue || !IsFloat(graph.type(id).dtype)) return NoValue("value of floats", name);
    active[id] = true;
  }
  for (const Op& op : graph.ops) {
    if (TreatmentOf(op.kind) == Treatment::kConstant) continue;
    const bool depends = std::ranges::any_of(
        op.inputs, [&](ValueId input) { return input != kNoValue && active[input]; });
    if (!depends) continue;
    for (const ValueId result : op.results) active[result] = IsFloat(graph.type(result).dtype);
  }
  return active;
}

// Decomposes the active ops that have no derivative of their own, until none is left.
Result<Graph> DecomposeActive(Graph graph, const Differentiation& what) {
  while (true) {
    RL_ASSIGN_OR_RETURN(const std::vector<bool> active, FindActive(graph, what));
    std::vector<bool> refused;
    refused.reserve(graph.ops.size());
    for (const Op& op : graph.ops) {
      refused.push_back(TreatmentOf(op.kind) == Treatment::kDecomposed && active[op.results[0]]);
    }
    if (std::ranges::find(refused, true) == refused.end()) return graph;
    RL_ASSIGN_OR_RETURN(graph, Decompose(graph, refused));
  }
}

// Which values are computed again for the derivatives, by value.
class Recomputation {
 public:
  // Error train.value if a checkpoint is not computed by an op, or before the one that precedes it.
  static Result<std::vector<bool>> Find(const Graph& graph,
                                        const std::vector<std::string>& checkpoints) {
    std::vector<bool> again(graph.values.size(), false);
    if (checkpoints.empty()) return again;
    RL_ASSIGN_OR_RETURN(const std::vector<size_t> part, PartsOf(graph, checkpoints));
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      for (const ValueId result : graph.ops[i].results) {
        again[result] = part[i] > 0 && part[i] < checkpoints.size() &&
                        graph.value(result).lifetime == Lifetime::kTransient &&
                        !IsDear(graph, graph.ops[i]);
      }
    }
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      for (const ValueId input : graph.ops[i].inputs) {
        if (input == kNoValue || graph.value(input).producer == kNoOp) continue;
        if (part[graph.value(input).producer] != part[i]) again[input] = false;
      }
    }
    for (const Output& output : graph.outputs) again[output.value] = false;
    return again;
  }

 private:
  // Whether the results of an op take much more time than memory: those of attention, and of
  // products with rows that are much longer than theirs.
  static bool IsDear(const Graph& graph, const Op& op) {
    constexpr int64_t kMuchLonger = 4;
    if (op.kind == OpKind::kAttention) return true;
    if (op.kind != OpKind::kMatMul) return false;
    const int64_t terms = graph.type(op.inputs[operands::MatMul::x]).last().constant;
    return terms >= kMuchLonger * graph.type(op.results[0]).last().constant;
  }

  // The part of each op: the number of checkpoints that are computed before it.
  static Result<std::vector<size_t>> PartsOf(const Graph& graph,
                                             const std::vector<std::string>& checkpoints) {
    std::vector<size_t> part(graph.ops.size(), checkpoints.size());
    size_t next = 0;
    for (size_t i = 0; i < checkpoints.size(); ++i) {
      const ValueId id = graph.Find(checkpoints[i]);
      const OpIndex end = id == kNoValue ? kNoOp : graph.value(id).producer;
      if (end == kNoOp || end < next) return NoValue("checkpoint in this order", checkpoints[i]);
      for (; next <= end; ++next) part[next] = i;
    }
    return part;
  }
};

class Differentiator {
 public:
  Differentiator(const Graph& source, const Differentiation& what, std::vector<bool> active,
                 std::vector<bool> again)
      : source_(source),
        what_(what),
        active_(std::move(active)),
        again_(std::move(again)),
        rewriter_(source),
        gradient_(source.values.size(), kNoValue),
        terms_(source.values.size(), 0),
        second_(source.values.size(), kNoValue) {}

  Result<Graph> Run() && {
    for (const Op& op : source_.ops) rewriter_.Keep(op);
    rewriter_.SetDevice(0);
    for (const GradientSeed& seed : what_.seeds) RL_RETURN_IF_ERROR(Plant(seed));
    for (size_t i = source_.ops.size(); i-- > 0;) RL_RETURN_IF_ERROR(Backward(source_.ops[i]));
    rewriter_.KeepOutputs();
    RL_RETURN_IF_ERROR(AddGradientOutputs());
    return std::move(rewriter_).Finish();
  }

 private:
  [[nodiscard]] GraphBuilder& builder() { return rewriter_.builder(); }

  [[nodiscard]] static TensorType GradientType(const TensorType& type) {
    TensorType gradient = type;
    gradient.dtype = DType::kF32;
    return gradient;
  }

  Status Plant(const GradientSeed& seed) {
    const ValueId value = source_.Find(seed.value);
    if (value == kNoValue) return NoValue("value", seed.value);
    const TensorType type = GradientType(source_.type(value));
    const ValueId known = source_.Find(seed.gradient);
    const ValueId gradient =
        known == kNoValue ? builder().Input(seed.gradient, type) : rewriter_.Map(known);
    if (builder().graph().type(gradient) != type) {
      return MakeError(ErrorKind::kRuntime, "train.value",
                       "the gradient '{}' of '{}' is {}, expected {}", seed.gradient, seed.value,
                       ToString(builder().graph().type(gradient)), ToString(type));
    }
    AddGradient(value, gradient);
    return OkStatus();
  }

  // A value is summed up as soon as a term is known, so that no term has to be kept.
  void AddGradient(ValueId value, ValueId term) {
    if (!active_[value]) return;
    ValueId& sum = gradient_[value];
    const int64_t terms = ++terms_[value];
    if (terms == 1) {
      sum = term;
      return;
    }
    sum = builder().Add(ops::Sum(sum, term),
                        fmt::format("{}.{}", GradientOf(source_.value(value).name), terms));
  }

  Status Backward(const Op& op) {
    const bool has_gradient = std::ranges::any_of(
        op.results, [&](ValueId result) { return gradient_[result] != kNoValue; });
    const bool wants_gradient = std::ranges::any_of(
        op.inputs, [&](ValueId input) { return input != kNoValue && active_[input]; });
    if (!has_gradient || !wants_gradient || TreatmentOf(op.kind) == Treatment::kConstant) {
      return OkStatus();
    }
    if (TreatmentOf(op.kind) != Treatment::kRule) return Refused(op, "as an op");
    std::vector<ValueId> operands;
    operands.reserve(op.inputs.size());
    for (const ValueId input : op.inputs) operands.push_back(Needed(input));
    derivatives::Site site{.b = builder(), .name = source_.value(op.results[0]).name};
    for (const ValueId result : op.results) {
      site.results.push_back(Needed(result));
      site.gradients.push_back(gradient_[result]);
    }
    for (const ValueId input : op.inputs) {
      site.active.push_back(input != kNoValue && active_[input]);
    }
    site.contributions.resize(op.inputs.size());
    rewriter_.SetDevice(0);
    CallRule(site, op.kind, operands, op.attrs);
    return Collect(op, site);
  }

  Status Collect(const Op& op, const derivatives::Site& site) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!site.active[i]) continue;
      const derivatives::Contribution& given = site.contributions[i];
      switch (given.kind) {
        case derivatives::Contribution::Kind::kGradient:
          AddGradient(op.inputs[i], given.a);
          break;
        case derivatives::Contribution::Kind::kProduct:
          RL_RETURN_IF_ERROR(AddProduct(op, i, given.a, given.b));
          break;
        case derivatives::Contribution::Kind::kNone:
          break;
        case derivatives::Contribution::Kind::kMissing:
          return Refused(op, fmt::format("by operand {}", InfoOf(op.kind).operands[i].name));
      }
    }
    return OkStatus();
  }

  // The gradient of a parameter += a^T b.
  Status AddProduct(const Op& op, size_t operand, ValueId a, ValueId b) {
    const ValueId parameter = op.inputs[operand];
    const Value& value = source_.value(parameter);
    if (value.lifetime != Lifetime::kState) {
      return Refused(op, fmt::format("by operand {}, which is not a parameter",
                                     InfoOf(op.kind).operands[operand].name));
    }
    ValueId& state = gradient_[parameter];
    if (state == kNoValue)
      state = builder().State(GradientOf(value.name), GradientType(value.type));
    state = builder().Add(ops::GradAccumulate{.g = state, .a = a, .b = b, .factor = 1},
                          fmt::format("{}.{}", GradientOf(value.name), ++terms_[parameter]));
    return OkStatus();
  }

  [[nodiscard]] Status Refused(const Op& op, const std::string& part) const {
    return MakeError(ErrorKind::kRuntime, "train.no_derivative",
                     "op {} '{}' cannot be differentiated {}, and it depends on a parameter",
                     NameOf(op.kind), source_.value(op.results[0]).name, part);
  }

  // A value of the source for use in a derivative: kept, or computed again.
  ValueId Needed(ValueId id) {
    if (id == kNoValue || !again_[id]) return rewriter_.Map(id);
    if (second_[id] != kNoValue) return second_[id];
    const Op& op = source_.ops[source_.value(id).producer];
    std::vector<ValueId> inputs;
    inputs.reserve(op.inputs.size());
    for (const ValueId input : op.inputs) inputs.push_back(Needed(input));
    rewriter_.SetDevice(op.device, 1);
    const std::vector<ValueId> results = builder().Add(
        op.kind, std::move(inputs), op.attrs, source_.value(op.results[0]).name + "/again");
    for (size_t i = 0; i < results.size(); ++i) {
      if (again_[op.results[i]]) second_[op.results[i]] = results[i];
    }
    return second_[id];
  }

  Status AddGradientOutputs() {
    for (const std::string& name : what_.observed) {
      const ValueId gradient = gradient_[source_.Find(name)];
      if (gradient == kNoValue) return NoPath(name);
      // An output is a value of its own.
      const ValueId copy = builder().Add(ops::Copy{gradient}, GradientOf(name));
      builder().Output(GradientOf(name), copy, RowDemand::kAll);
    }
    for (const std::string& name : what_.parameters) {
      if (gradient_[source_.Find(name)] == kNoValue) return NoPath(name);
    }
    return OkStatus();
  }

  const Graph& source_;
  const Differentiation& what_;
  std::vector<bool> active_;  // the following are by source value
  std::vector<bool> again_;
  GraphRewriter rewriter_;
  std::vector<ValueId>
      gradient_;                 // in the new graph; of a parameter, the last version of its state
  std::vector<int64_t> terms_;   // that are summed up in it
  std::vector<ValueId> second_;  // what was computed again
};

}  // namespace

std::string GradientOf(const std::string& name) { return name + "/grad"; }

Result<Graph> Differentiate(const Graph& graph, const Differentiation& what) {
  RL_ASSIGN_OR_RETURN(const Graph source, DecomposeActive(graph, what));
  RL_ASSIGN_OR_RETURN(std::vector<bool> active, FindActive(source, what));
  RL_ASSIGN_OR_RETURN(std::vector<bool> again, Recomputation::Find(source, what.checkpoints));
  return Differentiator(source, what, std::move(active), std::move(again)).Run();
}

}  // namespace rullama

#include "core/passes/canonicalise.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/passes/graph_rewriter.h"

namespace rullama {
namespace {

// The properties that two ops must share to compute the same result. Attributes are compared field
// by field, since the padding of their structs is undefined.
using OpKey = std::vector<uint64_t>;

OpKey KeyOf(const Op& op, const std::vector<ValueId>& inputs) {
  OpKey key = {static_cast<uint64_t>(op.kind), static_cast<uint64_t>(op.device),
               static_cast<uint64_t>(op.epoch)};
  key.insert(key.end(), inputs.begin(), inputs.end());
  for (const AttrInfo& attr : InfoOf(op.kind).attrs) {
    const size_t bytes = attr.type == AttrType::kI64 ? sizeof(int64_t) : sizeof(int32_t);
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const std::byte*>(op.attrs.data()) + attr.offset, bytes);
    key.push_back(bits);
  }
  return key;
}

class Canonicaliser {
 public:
  explicit Canonicaliser(const Graph& source) : source_(source), rewriter_(source) {}

  Result<Graph> Run() && {
    RL_RETURN_IF_ERROR(MergeLeaves());
    for (const Op& op : source_.ops) {
      if (!rewriter_.builder().ok()) break;
      Rewrite(op);
    }
    KeepOutputs();
    RL_ASSIGN_OR_RETURN(Graph graph, std::move(rewriter_).Finish());
    MakeNamesUnique(graph);
    return graph;
  }

 private:
  [[nodiscard]] const Graph& target() { return rewriter_.builder().graph(); }

  Status MergeLeaves() {
    std::unordered_map<std::string, std::vector<ValueId>> seen;  // by kind of leaf and name
    for (ValueId id = 0; id < source_.values.size(); ++id) {
      const Value& value = source_.value(id);
      if (value.producer != kNoOp) continue;
      const bool is_constant = value.lifetime == Lifetime::kConstant;
      const std::string key =
          is_constant ? fmt::format("constant {} {}", value.first_row, value.source)
                      : fmt::format("{} {}", static_cast<int>(value.lifetime), value.name);
      std::vector<ValueId>& same = seen[key];
      bool merged = false;
      for (const ValueId other : same) {
        if (source_.type(other) != value.type) continue;
        rewriter_.Bind(id, rewriter_.Map(other));
        merged = true;
      }
      if (merged) continue;
      if (!is_constant && !same.empty()) {
        return MakeError(ErrorKind::kRuntime, "passes.duplicate_name",
                         "'{}' is declared as {} and as {}; inputs and states are bound by name, "
                         "so each name has one type",
                         value.name, ToString(source_.type(same[0])), ToString(value.type));
      }
      same.push_back(id);
    }
    return OkStatus();
  }

  // The op of the new graph that computes `value`; null if `value` is a leaf.
  const Op* ProducerOf(ValueId value) {
    const OpIndex producer = target().value(value).producer;
    return producer == kNoOp ? nullptr : &target().ops[producer];
  }

  // True if the op returns its first operand unchanged. Reads of states are kept, because their
  // position in the order of ops decides which version they see.
  bool IsIdentity(const Op& op, ValueId x) {
    const TensorType& type = target().type(x);
    if (target().value(x).lifetime == Lifetime::kState) return false;
    switch (op.kind) {
      case OpKind::kCopy:
        return true;
      case OpKind::kCast:
      case OpKind::kSlice:
      case OpKind::kReshape:
        return source_.type(op.results[0]) == type;
      case OpKind::kAffine: {
        const auto& a = op.As<rl_affine_attrs>();
        return a.scale == 1.0F && a.bias == 0.0F;
      }
      default:
        return false;
    }
  }

  // Replaces f(g(x)) by one op on x where both are reshapes or both affine.
  void FoldIntoOperand(Op& op, std::vector<ValueId>& inputs) {
    if (op.kind != OpKind::kReshape && op.kind != OpKind::kAffine) return;
    const Op* inner = ProducerOf(inputs[0]);
    if (inner == nullptr || inner->kind != op.kind || inner->device != op.device ||
        inner->epoch != op.epoch) {
      return;
    }
    if (op.kind == OpKind::kAffine) {
      const auto& f = op.As<rl_affine_attrs>();
      const auto& g = inner->As<rl_affine_attrs>();
      const double scale = static_cast<double>(f.scale) * g.scale;
      const double bias = static_cast<double>(f.scale) * g.bias + f.bias;
      op.attrs = OpAttrs(rl_affine_attrs{0, static_cast<float>(scale), static_cast<float>(bias)});
    }
    inputs[0] = inner->inputs[0];
  }

  void Rewrite(const Op& source_op) {
    Op op = source_op;
    std::vector<ValueId> inputs = rewriter_.MapAll(op.inputs);
    if (!inputs.empty() && inputs[0] != kNoValue) {
      FoldIntoOperand(op, inputs);
      if (IsIdentity(op, inputs[0])) {
        rewriter_.Bind(op.results[0], inputs[0]);
        return;
      }
    }
    if (InfoOf(op.kind).trait == OpTrait::kEffect) {
      Add(op, std::move(inputs));
      return;
    }
    const OpKey key = KeyOf(op, inputs);
    if (const auto known = computed_.find(key); known != computed_.end()) {
      for (size_t i = 0; i < op.results.size(); ++i) {
        rewriter_.Bind(op.results[i], rewriter_.Map(known->second[i]));
      }
      return;
    }
    computed_.emplace(key, op.results);
    Add(op, std::move(inputs));
  }

  void Add(const Op& op, std::vector<ValueId> inputs) {
    const std::vector<ValueId> results = rewriter_.Emit(op, std::move(inputs));
    for (size_t i = 0; i < results.size(); ++i) rewriter_.Bind(op.results[i], results[i]);
  }

  void KeepOutputs() {
    GraphBuilder& builder = rewriter_.builder();
    rewriter_.SetDevice(0);
    std::unordered_set<ValueId> taken;
    for (const Output& output : source_.outputs) {
      if (!builder.ok()) return;
      ValueId value = rewriter_.Map(output.value);
      const bool is_leaf = target().value(value).lifetime != Lifetime::kTransient;
      if (is_leaf || taken.contains(value)) {
        const std::string& old = source_.value(output.value).name;
        const std::string& current = target().value(value).name;
        value = builder.Add(ops::Copy{value}, old == current ? current + "/copy" : old);
      }
      taken.insert(value);
      builder.Output(output.name, value, output.demand);
    }
    builder.WantedRows(rewriter_.Map(source_.rows_input));
  }

  // Inputs and states keep their names, because they are bound by name.
  static void MakeNamesUnique(Graph& graph) {
    const auto is_bound = [](const Value& value) {
      return value.lifetime == Lifetime::kInput ||
             (value.lifetime == Lifetime::kState && value.producer == kNoOp);
    };
    std::unordered_set<std::string> names;
    for (const Value& value : graph.values) {
      if (is_bound(value)) names.insert(value.name);
    }
    for (Value& value : graph.values) {
      if (is_bound(value)) continue;
      std::string name = value.name;
      for (int copy = 2; !names.insert(name).second; ++copy) {
        name = fmt::format("{}~{}", value.name, copy);
      }
      value.name = std::move(name);
    }
  }

  const Graph& source_;
  GraphRewriter rewriter_;
  std::map<OpKey, std::vector<ValueId>> computed_;  // results, as values of the source
};

}  // namespace

Result<Graph> Canonicalise(const Graph& graph) { return Canonicaliser(graph).Run(); }

}  // namespace rullama

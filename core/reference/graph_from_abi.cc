#include "core/reference/graph_from_abi.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/ir/verify.h"

namespace rullama::reference {
namespace {

Result<Value> ValueFromAbi(const rl_value& from) {
  Value value;
  value.name = std::string(sdk::View(from.name));
  if (FindDType(from.dtype) == nullptr || from.rank < 1 || from.rank > kMaxRank) {
    return MakeError(ErrorKind::kBackend, "ref.graph", "value '{}' has dtype {} and rank {}",
                     value.name, from.dtype, from.rank);
  }
  value.type.dtype = static_cast<DType>(from.dtype);
  value.type.rank = static_cast<int>(from.rank);
  for (int axis = 0; axis < value.type.rank; ++axis) {
    value.type.dim(axis) = Dim(from.dims[axis].constant, from.dims[axis].t, from.dims[axis].r);
  }
  switch (from.lifetime) {
    case RL_LIFETIME_INPUT:
      value.lifetime = Lifetime::kInput;
      return value;
    case RL_LIFETIME_CONSTANT:
      value.lifetime = Lifetime::kConstant;
      value.source = value.name;
      return value;
    case RL_LIFETIME_STATE:
      value.lifetime = Lifetime::kState;
      return value;
    case RL_LIFETIME_TRANSIENT:
    case RL_LIFETIME_OUTPUT:
      return value;
    default:
      return MakeError(ErrorKind::kBackend, "ref.graph", "value '{}' has lifetime {}", value.name,
                       from.lifetime);
  }
}

// Copies attributes from a struct of another ABI version, which may be shorter or longer. What it
// lacks is zero.
Result<OpAttrs> AttrsFromAbi(OpKind kind, const rl_op& from) {
  OpAttrs attrs(kind);
  uint32_t found = 0;
  if (from.attrs != nullptr && from.attrs_size >= sizeof(found)) {
    std::memcpy(&found, from.attrs, sizeof(found));
  }
  found = std::min(found, from.attrs_size);
  if (found < InfoOf(kind).min_attrs_size) {
    return MakeError(ErrorKind::kBackend, "ref.graph", "{}: attributes of {} bytes, expected {}",
                     NameOf(kind), found, attrs.size());
  }
  const uint32_t size = attrs.size();
  std::memcpy(attrs.data(), from.attrs, std::min(found, size));
  std::memcpy(attrs.data(), &size, sizeof(size));
  return attrs;
}

Result<Op> OpFromAbi(const rl_op& from, uint32_t value_count) {
  const OpInfo* info = FindOp(static_cast<OpKind>(from.kind));
  if (info == nullptr) {
    return MakeError(ErrorKind::kBackend, "ref.graph", "unknown op kind {}", from.kind);
  }
  RL_ASSIGN_OR_RETURN(const OpAttrs attrs, AttrsFromAbi(info->kind, from));
  Op op{info->kind, {}, {}, attrs};
  op.inputs.assign(from.inputs, from.inputs + from.input_count);
  op.results.assign(from.results, from.results + from.result_count);
  const auto is_value = [&](ValueId id) { return id < value_count; };
  const auto is_operand = [&](ValueId id) { return id == kNoValue || is_value(id); };
  if (!std::ranges::all_of(op.inputs, is_operand) || !std::ranges::all_of(op.results, is_value)) {
    return MakeError(ErrorKind::kBackend, "ref.graph", "{}: an operand or result is not a value",
                     info->name);
  }
  return op;
}

// Restores the fields that are not part of the ABI because they can be derived: the producers of
// values and the state that a version belongs to.
void Link(Graph& graph) {
  for (OpIndex i = 0; i < graph.ops.size(); ++i) {
    for (const ValueId result : graph.ops[i].results) graph.values[result].producer = i;
  }
  for (ValueId id = 0; id < graph.values.size(); ++id) {
    Value& value = graph.values[id];
    if (value.lifetime == Lifetime::kState && value.producer == kNoOp) value.state = id;
  }
  for (const Op& op : graph.ops) {  // in order, so that the old version is linked before the new
    const size_t written = std::min(WrittenOperands(InfoOf(op.kind)), op.results.size());
    for (size_t i = 0; i < written; ++i) {
      if (i >= op.inputs.size() || op.inputs[i] == kNoValue) continue;
      graph.values[op.results[i]].state = graph.values[op.inputs[i]].state;
    }
  }
}

}  // namespace

Result<Graph> GraphFromAbi(const sdk::GraphView& view) {
  Graph graph;
  graph.name = std::string(view.name());
  graph.max_t = view.max_t();
  graph.max_r = view.max_r();
  for (uint32_t i = 0; i < view.value_count(); ++i) {
    RL_ASSIGN_OR_RETURN(Value value, ValueFromAbi(view.value(i)));
    graph.values.push_back(std::move(value));
  }
  for (uint32_t i = 0; i < view.op_count(); ++i) {
    RL_ASSIGN_OR_RETURN(Op op, OpFromAbi(view.op(i), view.value_count()));
    graph.ops.push_back(std::move(op));
  }
  Link(graph);
  for (uint32_t i = 0; i < view.value_count(); ++i) {
    const rl_value& value = view.value(i);
    const bool observed = value.observed != 0 && graph.values[i].lifetime == Lifetime::kTransient;
    if (value.lifetime == RL_LIFETIME_OUTPUT || observed) {
      graph.outputs.push_back({graph.values[i].name, i, RowDemand::kAll});
    }
  }
  RL_RETURN_IF_ERROR(Verify(graph));
  return graph;
}

}  // namespace rullama::reference

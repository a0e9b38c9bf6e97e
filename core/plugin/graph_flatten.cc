#include "core/plugin/graph_flatten.h"

#include <string_view>

#include "core/base/check.h"

namespace rullama {
namespace {

static_assert(kNoValue == RL_NO_VALUE && kNoOp == RL_NO_OP && kMaxRank == RL_MAX_RANK);

rl_str ToStr(std::string_view text) { return {text.data(), text.size()}; }

rl_lifetime ToAbi(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kInput:
      return RL_LIFETIME_INPUT;
    case Lifetime::kConstant:
      return RL_LIFETIME_CONSTANT;
    case Lifetime::kState:
      return RL_LIFETIME_STATE;
    case Lifetime::kTransient:
      break;
  }
  return RL_LIFETIME_TRANSIENT;
}

rl_value Flatten(const Value& value, const Extents& max) {
  RL_CHECK(value.type.rank >= 1 && value.type.rank <= kMaxRank);  // Verify has run
  rl_value out{};
  out.dtype = static_cast<uint32_t>(value.type.dtype);
  out.rank = static_cast<uint32_t>(value.type.rank);
  for (int axis = 0; axis < value.type.rank; ++axis) {
    const Dim& dim = value.type.dim(axis);
    out.dims[axis] = {dim.constant, dim.t, dim.r};
  }
  out.lifetime = ToAbi(value.lifetime);
  out.name = ToStr(value.name);
  out.bytes = value.type.BytesAt(max);
  return out;
}

rl_op Flatten(const Op& op) {
  rl_op out{};
  out.kind = static_cast<uint32_t>(op.kind);
  out.input_count = static_cast<uint32_t>(op.inputs.size());
  out.inputs = op.inputs.data();
  out.result_count = static_cast<uint32_t>(op.results.size());
  out.results = op.results.data();
  out.attrs = op.attrs.data();
  out.attrs_size = op.attrs.size();
  return out;
}

}  // namespace

FlatGraph::FlatGraph(const Graph& graph) {
  values_.reserve(graph.values.size());
  for (const Value& value : graph.values) values_.push_back(Flatten(value, graph.MaxExtents()));
  for (const Output& output : graph.outputs) {
    rl_value& value = values_[output.value];
    if (value.lifetime == RL_LIFETIME_TRANSIENT) value.lifetime = RL_LIFETIME_OUTPUT;
  }
  ops_.reserve(graph.ops.size());
  for (const Op& op : graph.ops) ops_.push_back(Flatten(op));
  view_.struct_size = sizeof(view_);
  view_.value_size = sizeof(rl_value);
  view_.op_size = sizeof(rl_op);
  view_.value_count = static_cast<uint32_t>(values_.size());
  view_.op_count = static_cast<uint32_t>(ops_.size());
  view_.values = values_.data();
  view_.ops = ops_.data();
  view_.max_t = graph.max_t;
  view_.max_r = graph.max_r;
  view_.name = ToStr(graph.name);
}

FlatGraph::FlatGraph(const Graph& graph, std::span<const Storage> storage, RecordTimes record_times)
    : FlatGraph(graph) {
  RL_CHECK(storage.size() == values_.size());
  view_.record_times = record_times == RecordTimes::kYes ? 1 : 0;
  for (size_t i = 0; i < storage.size(); ++i) {
    const Storage& from = storage[i];
    rl_value& to = values_[i];
    to.lifetime = from.lifetime;
    to.observed = from.observed ? 1 : 0;
    to.weight = from.weight;
    to.buffer = from.buffer;
    to.offset = from.offset;
    to.bytes = from.bytes;
  }
}

}  // namespace rullama

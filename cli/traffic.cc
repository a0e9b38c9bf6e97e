#include "cli/traffic.h"

#include <algorithm>
#include <cmath>

namespace rullama::cli {
namespace {

int64_t RowsOf(const Graph& graph, const Op& op, const Extents& extents) {
  return graph.type(op.results[0]).rows().At(extents);
}

uint64_t ConstantBytes(const Graph& graph, const Op& op, size_t operand, const Extents& extents) {
  const Value& constant = graph.value(op.inputs[operand]);
  const uint64_t all = constant.type.BytesAt(extents);
  if (op.kind != OpKind::kGatherRows || operand != operands::GatherRows::table) return all;
  const auto& attrs = op.As<rl_gather_rows_attrs>();
  const auto rows = static_cast<uint64_t>(constant.type.rows().constant);
  const int64_t width = constant.type.last().constant;
  const uint64_t row_bytes = all / rows;
  const auto columns = static_cast<uint64_t>(attrs.columns > 0 ? attrs.columns : width);
  return static_cast<uint64_t>(RowsOf(graph, op, extents)) * row_bytes * columns /
         static_cast<uint64_t>(width);
}

bool HasExperts(OpKind kind) { return kind == OpKind::kMoeFfn || kind == OpKind::kGroupedMatMul; }

// The tensors of experts: those that somebody is expected to choose if the choices spread evenly.
void AddExperts(const Graph& graph, const Op& op, const Extents& extents, Traffic& sum) {
  static_assert(uint32_t{operands::MoeFfn::experts} == operands::GroupedMatMul::experts);
  const TensorType& choices = graph.type(op.inputs[operands::MoeFfn::experts]);
  const auto rows = static_cast<double>(choices.rows().At(extents));
  const auto used = static_cast<double>(choices.last().constant);
  for (const ValueId input : op.inputs) {
    if (input == kNoValue || graph.value(input).lifetime != Lifetime::kConstant) continue;
    const TensorType& tensor = graph.type(input);
    if (tensor.rank != 3) continue;
    const auto count = static_cast<double>(tensor.rows().constant);
    const double chosen = count * (1 - std::pow(1 - used / count, rows));
    const double part = chosen / count;
    sum.weight_bytes += static_cast<uint64_t>(part * static_cast<double>(tensor.BytesAt(extents)));
    sum.flops += 2 * rows * used * static_cast<double>(tensor.ElementsAt(extents)) / count;
  }
}

// Pairs of a query and a key it sees, for the last `queries` of `fresh` rows behind `past`.
double VisiblePairs(int64_t queries, int64_t fresh, int64_t past, int64_t window, rl_mask mask) {
  if (mask == RL_MASK_CANVAS) {
    const int64_t old = window > 0 ? std::min(past, window - 1) : past;
    return static_cast<double>(queries) * static_cast<double>(fresh + old);
  }
  double pairs = 0;
  for (int64_t row = fresh - queries; row < fresh; ++row) {
    const int64_t keys = past + row + 1;
    pairs += static_cast<double>(window > 0 ? std::min(keys, window) : keys);
  }
  return pairs;
}

void AddAttention(const Graph& graph, const Op& op, const Extents& extents, int64_t past,
                  Traffic& sum) {
  int64_t window = 0;
  double products = 1;  // of a query with a key, or of a weight with a value
  int32_t mask = RL_MASK_CAUSAL;
  if (op.kind == OpKind::kAttention) {
    window = op.As<rl_attention_attrs>().window;
    mask = op.As<rl_attention_attrs>().mask;
    products = 2;
  } else if (op.kind == OpKind::kAttentionScores) {
    window = op.As<rl_attention_scores_attrs>().window;
    mask = op.As<rl_attention_scores_attrs>().mask;
  }
  for (const ValueId input : op.inputs) {
    if (input == kNoValue || graph.value(input).lifetime != Lifetime::kState) continue;
    const TensorType& state = graph.type(input);  // [slots, rows, kv heads, head dim]
    const int64_t rows = std::min(past, state.dim(1).constant);
    sum.cache_bytes += state.BytesAt(extents) /
                       static_cast<uint64_t>(state.dim(0).constant * state.dim(1).constant) *
                       static_cast<uint64_t>(rows);
    if (op.kind == OpKind::kAttentionMix) window = state.dim(1).constant;
  }
  // Queries or mixed values: [rows, heads, head dim].
  const ValueId heads =
      op.kind == OpKind::kAttentionMix ? op.results[0] : op.inputs[operands::Attention::q];
  const TensorType& type = graph.type(heads);
  if (type.rank < 3) return;
  const auto width = static_cast<double>(type.dim(1).constant * type.dim(2).constant);
  const int64_t queries = type.rows().At(extents);
  sum.flops += products * 2 * width *
               VisiblePairs(queries, extents.t, past, window, static_cast<rl_mask>(mask));
}

void AddOp(const Graph& graph, const Op& op, const Extents& extents, int64_t past, Traffic& sum) {
  if (HasExperts(op.kind)) AddExperts(graph, op, extents, sum);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i] == kNoValue) continue;
    const Value& input = graph.value(op.inputs[i]);
    if (HasExperts(op.kind) && input.type.rank == 3) continue;
    if (input.lifetime != Lifetime::kConstant) continue;
    sum.weight_bytes += ConstantBytes(graph, op, i, extents);
    if (InfoOf(op.kind).operands[i].role == OperandRole::kWeight) {
      sum.flops += 2.0 * static_cast<double>(RowsOf(graph, op, extents)) *
                   static_cast<double>(input.type.ElementsAt(extents));
    }
  }
  if (op.kind == OpKind::kAttention || op.kind == OpKind::kAttentionScores ||
      op.kind == OpKind::kAttentionMix) {
    AddAttention(graph, op, extents, past, sum);
  }
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  weight_bytes += other.weight_bytes;
  cache_bytes += other.cache_bytes;
  flops += other.flops;
  return *this;
}

Traffic TrafficOfStep(const Program& program, const Extents& extents, int64_t past) {
  Traffic sum;
  for (const PlannedSegment& segment : program.segments) {
    for (const Op& op : segment.graph.ops) AddOp(segment.graph, op, extents, past, sum);
  }
  return sum;
}

}  // namespace rullama::cli

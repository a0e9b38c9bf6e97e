#include "core/ir/op_cost.h"

#include <rullama/sdk/operands.h>

#include <algorithm>
#include <map>

namespace rullama {
namespace {

// The operands and results of an op at the extents of a step. Absent operands have no bytes and no
// elements.
class Sizes {
 public:
  Sizes(const Graph& graph, const Op& op, const Extents& extents)
      : graph_(graph), op_(op), extents_(extents) {}

  [[nodiscard]] bool Has(size_t operand) const {
    return operand < op_.inputs.size() && op_.inputs[operand] != kNoValue;
  }
  [[nodiscard]] const TensorType& Input(size_t operand) const {
    return graph_.type(op_.inputs[operand]);
  }
  [[nodiscard]] double Bytes(size_t operand) const {
    return Has(operand) ? Bytes(Input(operand)) : 0;
  }
  [[nodiscard]] double Elements(size_t operand) const {
    return Has(operand) ? Elements(Input(operand)) : 0;
  }
  [[nodiscard]] double Dim(size_t operand, int axis) const {
    return Has(operand) ? static_cast<double>(Input(operand).dim(axis).At(extents_)) : 0;
  }
  [[nodiscard]] double Last(size_t operand) const {
    return Has(operand) ? Dim(operand, Input(operand).rank - 1) : 0;
  }
  [[nodiscard]] double ResultBytes(size_t result) const { return Bytes(ResultType(result)); }
  [[nodiscard]] double ResultElements(size_t result = 0) const {
    return Elements(ResultType(result));
  }

 private:
  [[nodiscard]] const TensorType& ResultType(size_t result) const {
    return graph_.type(op_.results[result]);
  }
  [[nodiscard]] double Bytes(const TensorType& type) const {
    return static_cast<double>(type.BytesAt(extents_));
  }
  [[nodiscard]] double Elements(const TensorType& type) const {
    return static_cast<double>(type.ElementsAt(extents_));
  }

  const Graph& graph_;
  const Op& op_;
  Extents extents_;
};

// The parts of the sequences that the queries of a step see, by the rule of attention.
struct Visible {
  double pairs_of_row = 0;  // keys that a query row sees, on average
  double old_rows = 0;      // rows of the caches that some query row sees
};

// The rule of attention as far as it depends on attributes and shapes.
struct MaskRule {
  int32_t mask = RL_MASK_CAUSAL;
  int64_t window = 0;  // 0: none
  bool has_cache = false;
  int64_t new_rows = 0;  // of the step, as keys
};

// The rows of one slot in a step: positions first to first + count - 1.
struct SlotRows {
  int64_t first = 0;
  int64_t count = 0;
};

std::map<int32_t, SlotRows> RowsBySlot(const StepForCost& step, int64_t new_rows) {
  const auto rows = static_cast<size_t>(new_rows);
  if (step.pos.size() != rows || step.slot.size() != rows) return {{0, {0, new_rows}}};
  std::map<int32_t, SlotRows> slots;
  for (size_t i = 0; i < rows; ++i) {
    const auto [slot, is_new] = slots.try_emplace(step.slot[i], SlotRows{step.pos[i], 0});
    slot->second.first = std::min<int64_t>(slot->second.first, step.pos[i]);
    ++slot->second.count;
  }
  return slots;
}

// The first position of the cache or, without one, of the step that a query at `pos` sees.
int64_t FirstVisible(const MaskRule& rule, const SlotRows& rows, int64_t pos) {
  const int64_t first = rule.has_cache ? 0 : rows.first;
  return rule.window > 0 ? std::max(first, pos - rule.window + 1) : first;
}

Visible VisibleRows(const StepForCost& step, const MaskRule& rule) {
  Visible visible;
  for (const auto& [slot, rows] : RowsBySlot(step, rule.new_rows)) {
    const auto old_rows = static_cast<double>(
        rows.first - std::min(rows.first, FirstVisible(rule, rows, rows.first)));
    visible.old_rows += old_rows;
    for (int64_t pos = rows.first; pos < rows.first + rows.count; ++pos) {
      visible.pairs_of_row += rule.mask == RL_MASK_CANVAS
                                  ? old_rows + static_cast<double>(rows.count)
                                  : static_cast<double>(pos - FirstVisible(rule, rows, pos) + 1);
    }
  }
  visible.pairs_of_row /= static_cast<double>(std::max<int64_t>(1, rule.new_rows));
  return visible;
}

int64_t RowsOf(const Sizes& sizes, size_t operand) {
  return static_cast<int64_t>(sizes.Dim(operand, 0));
}

// The rule of the ops with these operands and attributes.
template <typename Operands, typename Attrs>
MaskRule RuleOf(const Op& op, const Sizes& sizes, bool has_cache) {
  return {op.As<Attrs>().mask, op.As<Attrs>().window, has_cache, RowsOf(sizes, Operands::k_new)};
}

MaskRule RuleOf(const Op& op, const Sizes& sizes, const StepForCost& step) {
  switch (op.kind) {
    case OpKind::kAttention:
      return RuleOf<operands::Attention, rl_attention_attrs>(
          op, sizes, sizes.Has(operands::Attention::k_state));
    case OpKind::kAttentionScores:
      return RuleOf<operands::AttentionScores, rl_attention_scores_attrs>(
          op, sizes, sizes.Has(operands::AttentionScores::k_state));
    case OpKind::kAttentionMix:
      return {.has_cache = sizes.Has(operands::AttentionMix::v_state),
              .new_rows = RowsOf(sizes, operands::AttentionMix::v_new)};
    case OpKind::kAttentionStats:
      return RuleOf<operands::AttentionStats, rl_attention_stats_attrs>(op, sizes, false);
    case OpKind::kAttentionGradQ:
      return RuleOf<operands::AttentionGradQ, rl_attention_grad_q_attrs>(op, sizes, false);
    case OpKind::kAttentionGradKv:
      return RuleOf<operands::AttentionGradKv, rl_attention_grad_kv_attrs>(op, sizes, false);
    default:
      return {.has_cache = true, .new_rows = step.extents.t};  // the history of penalties
  }
}

// Products of a query with a key or a value, of the width of a head, for each visible pair and
// query head: 0 for ops without any.
double ProductsOfAttention(OpKind kind) {
  switch (kind) {
    case OpKind::kAttentionScores:
    case OpKind::kAttentionMix:
    case OpKind::kAttentionStats:
      return 1;
    case OpKind::kAttention:
      return 2;
    case OpKind::kAttentionGradQ:
      return 3;  // scores again, dy . v, and dq
    case OpKind::kAttentionGradKv:
      return 4;  // scores again, dy . v, dk and dv
    default:
      return 0;
  }
}

bool SeesSequences(OpKind kind) {
  return ProductsOfAttention(kind) > 0 || kind == OpKind::kPenalties ||
         kind == OpKind::kRowPenalties;
}

double AttentionOperations(const Op& op, const Sizes& sizes, const Visible& visible) {
  // q of attention, or the probabilities of attention_mix [rows, heads, keys].
  const bool is_mix = op.kind == OpKind::kAttentionMix;
  const double head = is_mix ? sizes.Last(operands::AttentionMix::v_new) : sizes.Last(0);
  const double queries = sizes.Dim(0, 0) * sizes.Dim(0, 1);
  return 2 * ProductsOfAttention(op.kind) * queries * visible.pairs_of_row * head;
}

// The experts that rows [rows, k] of `experts` name, at most all of the weight [experts, ...].
double ExpertsRead(const Sizes& sizes, size_t experts, size_t weight) {
  return std::min(sizes.Elements(experts), sizes.Dim(weight, 0));
}

// The elements of one matrix of a stack.
double ElementsOfOne(const Sizes& sizes, size_t stack) {
  return sizes.Elements(stack) / sizes.Dim(stack, 0);
}

// Multiplications with the adapters that rows have. Operands: those of an op with one stack of
// them.
template <typename Operands>
double ProductsOfRows(const Sizes& sizes) {
  return sizes.Elements(Operands::ids) *
         (ElementsOfOne(sizes, Operands::a) + ElementsOfOne(sizes, Operands::b));
}

// The operand that says which matrices of the stack `operand` rows have, or -1 if it is not a
// stack.
int64_t ChoiceOf(const Op& op, const Sizes& sizes, size_t operand) {
  if (sizes.Input(operand).rank != 3) return -1;
  switch (op.kind) {
    case OpKind::kGroupedMatMul:
      return operands::GroupedMatMul::experts;
    case OpKind::kMoeFfn:
      return operands::MoeFfn::experts;
    case OpKind::kAdapterSum:
      return operands::AdapterSum::ids;
    case OpKind::kRowAdaptedLinear:
      return operands::RowAdaptedLinear::ids;
    case OpKind::kRowAdaptedGeGluLinear:
      return operands::RowAdaptedGeGluLinear::ids;
    default:
      return -1;
  }
}

// Multiplications with their additions, or a negative number for ops that are not counted by them.
double ProductsOf(const Op& op, const Sizes& sizes) {
  switch (op.kind) {
    case OpKind::kMatMul:
      return sizes.ResultElements() * sizes.Last(operands::MatMul::x);
    case OpKind::kGroupedMatMul:
      return sizes.ResultElements() * sizes.Last(operands::GroupedMatMul::x);
    case OpKind::kCausalConv1d:
      return sizes.ResultElements() * sizes.Last(operands::CausalConv1d::weight);
    case OpKind::kGeGluLinear:
      return 2 * sizes.ResultElements() * sizes.Last(operands::GeGluLinear::x);
    case OpKind::kAdaptedLinear:
      return sizes.Dim(operands::AdaptedLinear::x, 0) *
             (sizes.Elements(operands::AdaptedLinear::weight) +
              sizes.Elements(operands::AdaptedLinear::a) +
              sizes.Elements(operands::AdaptedLinear::b));
    case OpKind::kAdaptedGeGluLinear: {
      using In = operands::AdaptedGeGluLinear;
      double elements = 0;
      for (const size_t weight :
           {In::gate_weight, In::gate_a, In::gate_b, In::up_weight, In::up_a, In::up_b}) {
        elements += sizes.Elements(weight);
      }
      return sizes.Dim(In::x, 0) * elements;
    }
    case OpKind::kAdapterSum:
      return ProductsOfRows<operands::AdapterSum>(sizes);
    case OpKind::kRowAdaptedLinear: {
      using In = operands::RowAdaptedLinear;
      return sizes.Dim(In::x, 0) * sizes.Elements(In::weight) + ProductsOfRows<In>(sizes);
    }
    case OpKind::kRowAdaptedGeGluLinear: {
      using In = operands::RowAdaptedGeGluLinear;
      return 2 * sizes.ResultElements() * sizes.Last(In::x) +
             sizes.Elements(In::ids) *
                 (ElementsOfOne(sizes, In::gate_a) + ElementsOfOne(sizes, In::gate_b) +
                  ElementsOfOne(sizes, In::up_a) + ElementsOfOne(sizes, In::up_b));
    }
    case OpKind::kPleInject:
      return sizes.Dim(operands::PleInject::x, 0) *
             (sizes.Elements(operands::PleInject::gate_weight) +
              sizes.Elements(operands::PleInject::proj_weight));
    case OpKind::kMoeFfn: {
      const double all = sizes.Elements(operands::MoeFfn::gate_weight) +
                         sizes.Elements(operands::MoeFfn::up_weight) +
                         sizes.Elements(operands::MoeFfn::down_weight);
      return sizes.Elements(operands::MoeFfn::experts) * all /
             sizes.Dim(operands::MoeFfn::gate_weight, 0);
    }
    case OpKind::kSoftEmbed:
      return sizes.Dim(operands::SoftEmbed::logits, 0) * sizes.Elements(operands::SoftEmbed::table);
    case OpKind::kLinearCrossEntropy:  // the logits, and dx from their derivatives
      return 2 * sizes.Dim(operands::LinearCrossEntropy::x, 0) *
             sizes.Elements(operands::LinearCrossEntropy::weight);
    case OpKind::kLocalAttention:  // with the keys, the distances and the values
      return 3 * sizes.Elements(operands::LocalAttention::q) *
             sizes.Dim(operands::LocalAttention::rel, 0);
    case OpKind::kAttentionMixRows:
      return sizes.Elements(operands::AttentionMixRows::probability) *
             sizes.Last(operands::AttentionMixRows::x);
    case OpKind::kGradAccumulate:
      return sizes.Dim(operands::GradAccumulate::a, 0) *
             sizes.Elements(operands::GradAccumulate::g);
    default:
      return -1;
  }
}

// Floating-point operations of an op; 0 for one that only moves elements.
double OperationsOf(const Op& op, const Sizes& sizes, const Visible& visible) {
  if (InfoOf(op.kind).trait == OpTrait::kMoves || op.kind == OpKind::kStateAppend) return 0;
  if (ProductsOfAttention(op.kind) > 0) return AttentionOperations(op, sizes, visible);
  if (const double products = ProductsOf(op, sizes); products >= 0) return 2 * products;
  double largest = 0;
  const auto& operands = InfoOf(op.kind).operands;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool is_data = operands[i].role == OperandRole::kData || op.kind == OpKind::kAdamW;
    if (is_data) largest = std::max(largest, sizes.Elements(i));
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    largest = std::max(largest, sizes.ResultElements(i));
  }
  return largest;
}

// Bytes of a cache [slots, capacity, ...] in `rows` rows, at most all.
double BytesOfRows(const Sizes& sizes, size_t state, double rows) {
  const double all = sizes.Dim(state, 0) * sizes.Dim(state, 1);
  return all > 0 ? sizes.Bytes(state) * std::min(1.0, rows / all) : 0;
}

// The bytes that are read of an operand.
double BytesRead(const Op& op, size_t operand, const Sizes& sizes, const Visible& visible) {
  const double bytes = sizes.Bytes(operand);
  switch (InfoOf(op.kind).operands[operand].role) {
    case OperandRole::kWeight: {
      const int64_t chosen = ChoiceOf(op, sizes, operand);
      if (chosen < 0) return bytes;
      return bytes * ExpertsRead(sizes, static_cast<size_t>(chosen), operand) /
             sizes.Dim(operand, 0);
    }
    case OperandRole::kTable: {
      if (op.kind != OpKind::kGatherRows) return bytes;
      // In the type of the table.
      const double part = sizes.ResultElements() / std::max(1.0, sizes.Elements(operand));
      return bytes * part;
    }
    case OperandRole::kState:
      if (op.kind == OpKind::kStateAppend) return 0;
      if (ProductsOfAttention(op.kind) > 0) return BytesOfRows(sizes, operand, visible.old_rows);
      if (WrittenOperands(InfoOf(op.kind)) > 0) return bytes;
      return BytesOfRows(sizes, operand, visible.old_rows);  // the tokens of penalties
    default:
      return bytes;
  }
}

// The bytes that are written of a result: of a cache the new rows, which have its type.
double BytesWritten(const Op& op, size_t result, const Sizes& sizes) {
  return op.kind == OpKind::kStateAppend ? sizes.Bytes(operands::StateAppend::rows)
                                         : sizes.ResultBytes(result);
}

}  // namespace

OpCost CostOf(const Graph& graph, const Op& op, const StepForCost& step) {
  const Sizes sizes(graph, op, step.extents);
  Visible visible;
  if (SeesSequences(op.kind)) visible = VisibleRows(step, RuleOf(op, sizes, step));
  OpCost cost;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!sizes.Has(i)) continue;
    const double bytes = BytesRead(op, i, sizes, visible);
    const Lifetime lifetime = graph.value(op.inputs[i]).lifetime;
    const bool is_stored = lifetime == Lifetime::kConstant || lifetime == Lifetime::kState;
    cost.bytes += bytes;
    if (is_stored) cost.stored_bytes += bytes;
  }
  for (size_t i = 0; i < op.results.size(); ++i) cost.bytes += BytesWritten(op, i, sizes);
  cost.operations = OperationsOf(op, sizes, visible);
  return cost;
}

GroupCost::GroupCost(const Graph& graph, std::span<const uint32_t> ops)
    : graph_(&graph), ops_(ops.begin(), ops.end()) {
  depends_on_rows_ = std::ranges::any_of(
      ops_, [&graph](uint32_t op) { return SeesSequences(graph.ops[op].kind); });
  if (ops_.size() < 2) return;
  std::map<ValueId, Inner> inner;
  for (const uint32_t op : ops_) {
    for (const ValueId id : graph.ops[op].results) {
      const Value& value = graph.value(id);
      if (value.lifetime == Lifetime::kTransient) inner[id] = {.type = value.type};
    }
  }
  for (const Output& output : graph.outputs) {
    if (const auto value = inner.find(output.value); value != inner.end()) {
      value->second.leaves = true;
    }
  }
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    const bool reads_inside = std::ranges::find(ops_, i) != ops_.end();
    for (const ValueId id : graph.ops[i].inputs) {
      const auto value = inner.find(id);
      if (value == inner.end()) continue;
      if (reads_inside) {
        ++value->second.reads;
      } else {
        value->second.leaves = true;
      }
    }
  }
  for (const auto& [id, value] : inner) {
    if (value.reads > 0) inner_.push_back(value);
  }
}

OpCost GroupCost::At(const StepForCost& step) const {
  OpCost cost;
  for (const uint32_t op : ops_) cost += CostOf(*graph_, graph_->ops[op], step);
  for (const Inner& value : inner_) {
    const int moved = value.reads + (value.leaves ? 0 : 1);
    cost.bytes -= static_cast<double>(value.type.BytesAt(step.extents)) * moved;
  }
  cost.bytes = std::max(0.0, cost.bytes);  // where only parts of an inner value are read
  return cost;
}

}  // namespace rullama

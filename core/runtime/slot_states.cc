#include "core/runtime/slot_states.h"

#include <rullama/sdk/operands.h>

#include <map>

namespace rullama {
namespace {

bool IsInput(const Graph& graph, ValueId id, std::string_view name) {
  const Value& value = graph.value(id);
  return value.lifetime == Lifetime::kInput && value.name == name;
}

// The type of one row of a state [slots, rows, ...].
TensorType RowTypeOf(const TensorType& state) {
  TensorType row;
  row.dtype = state.dtype;
  row.rank = state.rank - 2;
  for (int axis = 0; axis < row.rank; ++axis) row.dim(axis) = state.dim(axis + 2);
  return row;
}

}  // namespace

Status SlotStates::AddGraph(const Graph& graph, size_t index, int64_t slots) {
  using In = operands::StateAppend;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kStateAppend) continue;
    if (graph.type(op.inputs[In::rows]).rows().r != 0) continue;
    const Value& state = graph.value(graph.value(op.inputs[In::state]).state);
    const bool follows_slots = IsInput(graph, op.inputs[In::pos], input_names::kPos) &&
                               IsInput(graph, op.inputs[In::slot], input_names::kSlot) &&
                               state.type.dim(0) == Dim(slots);
    if (!follows_slots) {
      return MakeError(ErrorKind::kRuntime, "snapshot.state",
                       "state '{}' of type {} is not appended to at the position and slot of each "
                       "row, expected rows of {} slots; such a graph has no snapshots",
                       state.name, ToString(state.type), slots);
    }
    if (std::ranges::find(states_, state.name, &SlotState::name) != states_.end()) continue;
    const int64_t rows = state.type.dim(1).constant;
    const uint64_t row_bytes = state.type.BytesAt({}) / static_cast<uint64_t>(slots * rows);
    states_.push_back({state.name, ToString(RowTypeOf(state.type)), rows, row_bytes, index, rows});
  }
  LimitReach(graph);
  return OkStatus();
}

void SlotStates::LimitReach(const Graph& graph) {
  using In = operands::Attention;
  std::map<std::string_view, int64_t> windows;  // by state: the longest of its readers
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kAttention) continue;
    const int64_t window = op.As<rl_attention_attrs>().window;
    for (const uint32_t operand : {In::k_state, In::v_state}) {
      if (op.inputs[operand] == kNoValue) continue;
      const ValueId first = graph.value(op.inputs[operand]).state;
      if (first == kNoValue) continue;  // in a part of a graph, a cache can be a plain input
      const Value& state = graph.value(first);
      int64_t& longest = windows.try_emplace(state.name, window).first->second;
      longest = longest == 0 || window == 0 ? 0 : std::max(longest, window);
    }
  }
  for (SlotState& state : states_) {
    const auto found = windows.find(state.name);
    if (found != windows.end() && found->second > 0) {
      state.reach = std::min(state.rows, found->second);
    }
  }
}

int64_t SlotStates::shortest() const {
  if (states_.empty()) return kMaxRows;
  return std::ranges::min_element(states_, {}, &SlotState::rows)->rows;
}

int64_t SlotStates::longest() const {
  if (states_.empty()) return kMaxRows;
  return std::ranges::max_element(states_, {}, &SlotState::rows)->rows;
}

int64_t SlotStates::spare() const {
  const int64_t most = longest();
  int64_t spare = kMaxRows;
  for (const SlotState& state : states_) {
    if (state.rows < most) spare = std::min(spare, state.rows - state.reach);
  }
  return spare == kMaxRows ? 0 : spare;
}

}  // namespace rullama

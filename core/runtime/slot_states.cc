#include "core/runtime/slot_states.h"

#include <rullama/sdk/operands.h>

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
    states_.push_back({state.name, ToString(RowTypeOf(state.type)), rows, row_bytes, index});
  }
  return OkStatus();
}

int64_t SlotStates::shortest() const {
  if (states_.empty()) return kMaxRows;
  return std::ranges::min_element(states_, {}, &SlotState::rows)->rows;
}

int64_t SlotStates::longest() const {
  if (states_.empty()) return kMaxRows;
  return std::ranges::max_element(states_, {}, &SlotState::rows)->rows;
}

}  // namespace rullama

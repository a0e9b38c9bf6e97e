// State: append, and the position that a ring row holds.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "core/reference/evaluate.h"
#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

// Row i is stored in state row places[i] = slot * capacity + pos mod capacity. Rows are stored in
// order, so of several rows for one state row the last one remains.
Result<std::vector<int64_t>> PlacesOf(std::span<const int64_t> dims, const Tensor& pos,
                                      const Tensor& slot) {
  std::vector<int64_t> places;
  for (size_t row = 0; row < pos.i.size(); ++row) {
    if (slot.i[row] < 0 || slot.i[row] >= dims[0] || pos.i[row] < 0) {
      return MakeError(ErrorKind::kRuntime, "ref.index",
                       "state_append: row {} has slot {} and position {}, the state {} slots", row,
                       slot.i[row], pos.i[row], dims[0]);
    }
    places.push_back(slot.i[row] * dims[1] + pos.i[row] % dims[1]);
  }
  return places;
}

}  // namespace

int64_t RingPosition(int64_t row, int64_t past, int64_t capacity) {
  if (row >= past) return -1;
  return row + (past - 1 - row) / capacity * capacity;
}

Status AppendInPlace(Tensor& state, const Tensor& rows, const Tensor& pos, const Tensor& slot) {
  RL_ASSIGN_OR_RETURN(const std::vector<int64_t> places, PlacesOf(state.dims, pos, slot));
  const auto width = static_cast<size_t>(rows.row_elements());
  for (size_t row = 0; row < places.size(); ++row) {
    const size_t from = row * width;
    const size_t to = static_cast<size_t>(places[row]) * width;
    if (IsInteger(state.dtype)) {
      std::ranges::copy(std::span(rows.i).subspan(from, width),
                        state.i.begin() + static_cast<std::ptrdiff_t>(to));
    } else {
      const auto stored = std::span(state.f).subspan(to, width);
      std::ranges::copy(std::span(rows.f).subspan(from, width), stored.begin());
      RoundAll(state.dtype, stored);
    }
  }
  return OkStatus();
}

Status AppendToMemory(DType dtype, std::span<const int64_t> dims, std::span<std::byte> bytes,
                      const Tensor& rows, const Tensor& pos, const Tensor& slot) {
  RL_ASSIGN_OR_RETURN(const std::vector<int64_t> places, PlacesOf(dims, pos, slot));
  const int64_t width = rows.row_elements();
  for (size_t row = 0; row < places.size(); ++row) {
    PackElements(rows, static_cast<int64_t>(row) * width, width, dtype, places[row] * width, bytes);
  }
  return OkStatus();
}

Status EvalStateAppend(const Call& call) {
  using In = operands::StateAppend;
  call.y() = call.in(In::state);
  return AppendInPlace(call.y(), call.in(In::rows), call.in(In::pos), call.in(In::slot));
}

}  // namespace rullama::reference

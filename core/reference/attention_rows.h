// The keys and values that attention and its derivatives read, and which of them a query sees.
// Internal to core/reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/reference/kernels.h"

namespace rullama::reference {

// The rows of keys or of values: cached rows in a state [slots, capacity, kv_heads, dim], which may
// be null, and fresh rows [T, kv_heads, dim]. Columns number the state rows of a slot first, then
// the fresh rows.
class KeyRows {
 public:
  KeyRows(const Tensor* state, const Tensor& fresh)
      : state_(state),
        fresh_(fresh),
        capacity_(state == nullptr ? 0 : state->dims[1]),
        width_(fresh.row_elements()) {}

  [[nodiscard]] int64_t capacity() const { return capacity_; }
  // The slots that rows may belong to: without a state any.
  [[nodiscard]] int64_t slots() const { return state_ == nullptr ? kMaxRows : state_->dims[0]; }
  [[nodiscard]] int64_t kv_heads() const { return fresh_.dims[1]; }
  [[nodiscard]] int64_t dim() const { return fresh_.dims[2]; }
  [[nodiscard]] int64_t columns() const { return capacity_ + fresh_.rows(); }

  // The vector of one column and kv head. State rows are decoded on first use, so rows that no
  // query sees may be uninitialised.
  Result<std::span<const double>> At(int64_t slot, int64_t column, int64_t kv_head) {
    const auto length = static_cast<size_t>(dim());
    const auto offset = static_cast<size_t>(kv_head * dim());
    if (column >= capacity_) {
      const double* row = fresh_.f.data() + (column - capacity_) * width_;
      return std::span<const double>(row + offset, length);
    }
    const int64_t index = slot * capacity_ + column;
    auto [entry, inserted] = decoded_.try_emplace(index);
    if (inserted) {
      entry->second.resize(static_cast<size_t>(width_));
      RL_RETURN_IF_ERROR(ReadFloats(*state_, index * width_, entry->second));
    }
    return std::span<const double>(entry->second.data() + offset, length);
  }

 private:
  const Tensor* state_;
  const Tensor& fresh_;
  int64_t capacity_;
  int64_t width_;
  std::map<int64_t, std::vector<double>> decoded_;
};

// Visibility: positions, slots and the attributes of the mask.
struct Visibility {
  const Tensor& q_pos;
  const Tensor& q_slot;
  const Tensor& kv_pos;
  const Tensor& kv_slot;
  const Tensor* past;  // null: there are no old rows
  rl_mask mask;
  int64_t window;
  const Tensor* q_end = nullptr;  // null: q_pos

  // A query's position and the last position that it sees.
  struct Query {
    int64_t position, last;
  };

  [[nodiscard]] bool Causal(int64_t position, const Query& query) const {
    return position <= query.last && (window == 0 || query.position - position < window);
  }
  [[nodiscard]] bool OldRow(int64_t position, const Query& query, int64_t stored) const {
    if (position < 0) return false;
    if (mask == RL_MASK_CANVAS) return window == 0 || position >= stored - window + 1;
    return Causal(position, query);
  }
  [[nodiscard]] bool FreshRow(int64_t position, const Query& query) const {
    return mask == RL_MASK_CANVAS || Causal(position, query);
  }

  // The visible columns of a query row, ascending.
  [[nodiscard]] Result<std::vector<int64_t>> Columns(const Call& call, int64_t row,
                                                     int64_t capacity, int64_t slots) const {
    const int64_t position = q_pos.i[static_cast<size_t>(row)];
    const Query query{position, q_end == nullptr ? position : q_end->i[static_cast<size_t>(row)]};
    const int64_t slot = q_slot.i[static_cast<size_t>(row)];
    if (slot < 0 || slot >= slots) {
      return IndexError(call, "row {} has slot {}, the state {} slots", row, slot, slots);
    }
    const int64_t stored = past == nullptr ? 0 : past->i[static_cast<size_t>(slot)];
    if (stored < 0 || position < 0) {
      return IndexError(call, "row {} has position {} and past {}", row, position, stored);
    }
    if (query.last < position) {
      return IndexError(call, "row {} has position {} and q_end {}", row, position, query.last);
    }
    std::vector<int64_t> columns;
    for (int64_t j = 0; j < std::min(capacity, stored); ++j) {
      if (OldRow(RingPosition(j, stored, capacity), query, stored)) columns.push_back(j);
    }
    for (size_t i = 0; i < kv_pos.i.size(); ++i) {
      if (kv_slot.i[i] == slot && FreshRow(kv_pos.i[i], query)) {
        columns.push_back(capacity + static_cast<int64_t>(i));
      }
    }
    return columns;
  }
};

inline double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

inline std::span<const double> HeadOf(const Tensor& x, int64_t row, int64_t head) {
  return Row(x, row * x.dims[1] + head);
}

}  // namespace rullama::reference

// Rotary embedding, fused attention and the two parts of decomposed attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

// The rows of keys or of values: cached rows in a state [slots, capacity, kv_heads, dim] and fresh
// rows [T, kv_heads, dim]. Columns number the state rows of a slot first, then the fresh rows.
class KeyRows {
 public:
  KeyRows(const Tensor& state, const Tensor& fresh)
      : state_(state), fresh_(fresh), capacity_(state.dims[1]), width_(fresh.row_elements()) {}

  [[nodiscard]] int64_t capacity() const { return capacity_; }
  [[nodiscard]] int64_t slots() const { return state_.dims[0]; }
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
      RL_RETURN_IF_ERROR(ReadFloats(state_, index * width_, entry->second));
    }
    return std::span<const double>(entry->second.data() + offset, length);
  }

 private:
  const Tensor& state_;
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
  const Tensor& past;
  rl_mask mask;
  int64_t window;

  [[nodiscard]] bool OldRow(int64_t position, int64_t query, int64_t stored) const {
    if (position < 0) return false;
    if (mask == RL_MASK_CANVAS) return window == 0 || position >= stored - window + 1;
    return position <= query && (window == 0 || query - position < window);
  }
  [[nodiscard]] bool FreshRow(int64_t position, int64_t query) const {
    if (mask == RL_MASK_CANVAS) return true;
    return position <= query && (window == 0 || query - position < window);
  }

  // The visible columns of a query row, ascending.
  [[nodiscard]] Result<std::vector<int64_t>> Columns(const Call& call, int64_t row,
                                                     int64_t capacity, int64_t slots) const {
    const int64_t query = q_pos.i[static_cast<size_t>(row)];
    const int64_t slot = q_slot.i[static_cast<size_t>(row)];
    if (slot < 0 || slot >= slots) {
      return IndexError(call, "row {} has slot {}, the state {} slots", row, slot, slots);
    }
    const int64_t stored = past.i[static_cast<size_t>(slot)];
    if (stored < 0 || query < 0) {
      return IndexError(call, "row {} has position {} and past {}", row, query, stored);
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

double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

std::span<const double> HeadOf(const Tensor& x, int64_t row, int64_t head) {
  return Row(x, row * x.dims[1] + head);
}

}  // namespace

Status EvalRope(const Call& call) {
  using In = operands::Rope;
  const auto& a = call.As<rl_rope_attrs>();
  const Tensor& x = call.in(In::x);
  const auto half = static_cast<size_t>(a.n_rot / 2);
  for (int64_t r = 0; r < RowCount(x); ++r) {
    const auto in = Row(x, r);
    const auto out = Row(call.y(), r);
    std::copy(in.begin(), in.end(), out.begin());
    const auto pos = static_cast<double>(call.in(In::pos).i[static_cast<size_t>(r / x.dims[1])]);
    for (size_t i = 0; i < half; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / a.n_rot;
      const double factor = call.has(In::freq_factors) ? call.in(In::freq_factors).f[i] : 1.0;
      const double turn = pos * std::pow(double{a.theta}, exponent) / factor;
      const double angle = a.inverse != 0 ? -turn : turn;
      out[i] = in[i] * std::cos(angle) - in[i + half] * std::sin(angle);
      out[i + half] = in[i] * std::sin(angle) + in[i + half] * std::cos(angle);
    }
  }
  return OkStatus();
}

Status EvalAttention(const Call& call) {
  using In = operands::Attention;
  const auto& a = call.As<rl_attention_attrs>();
  const Tensor& q = call.in(In::q);
  KeyRows keys(call.in(In::k_state), call.in(In::k_new));
  KeyRows values(call.in(In::v_state), call.in(In::v_new));
  const Visibility visibility{call.in(In::q_pos),
                              call.in(In::q_slot),
                              call.in(In::kv_pos),
                              call.in(In::kv_slot),
                              call.in(In::past),
                              static_cast<rl_mask>(a.mask),
                              a.window};
  const int64_t group = q.dims[1] / keys.kv_heads();
  for (int64_t row = 0; row < q.rows(); ++row) {
    RL_ASSIGN_OR_RETURN(const std::vector<int64_t> columns,
                        visibility.Columns(call, row, keys.capacity(), keys.slots()));
    const int64_t slot = call.in(In::q_slot).i[static_cast<size_t>(row)];
    std::vector<double> scores(columns.size());
    std::vector<double> probability(columns.size());
    for (int64_t head = 0; head < q.dims[1]; ++head) {
      for (size_t j = 0; j < columns.size(); ++j) {
        RL_ASSIGN_OR_RETURN(const auto key, keys.At(slot, columns[j], head / group));
        scores[j] = Dot(HeadOf(q, row, head), key) * double{a.scale};
      }
      SoftmaxRow(scores, probability);
      const auto y = Row(call.y(), row * q.dims[1] + head);
      for (size_t j = 0; j < columns.size(); ++j) {
        if (probability[j] == 0) continue;
        RL_ASSIGN_OR_RETURN(const auto value, values.At(slot, columns[j], head / group));
        for (size_t d = 0; d < y.size(); ++d) y[d] += probability[j] * value[d];
      }
    }
  }
  return OkStatus();
}

Status EvalAttentionScores(const Call& call) {
  using In = operands::AttentionScores;
  const auto& a = call.As<rl_attention_scores_attrs>();
  const Tensor& q = call.in(In::q);
  KeyRows keys(call.in(In::k_state), call.in(In::k_new));
  const Visibility visibility{call.in(In::q_pos),
                              call.in(In::q_slot),
                              call.in(In::kv_pos),
                              call.in(In::kv_slot),
                              call.in(In::past),
                              static_cast<rl_mask>(a.mask),
                              a.window};
  const int64_t group = q.dims[1] / keys.kv_heads();
  std::fill(call.y().f.begin(), call.y().f.end(), -kInfinity);
  for (int64_t row = 0; row < q.rows(); ++row) {
    RL_ASSIGN_OR_RETURN(const std::vector<int64_t> columns,
                        visibility.Columns(call, row, keys.capacity(), keys.slots()));
    const int64_t slot = call.in(In::q_slot).i[static_cast<size_t>(row)];
    for (int64_t head = 0; head < q.dims[1]; ++head) {
      const auto y = Row(call.y(), row * q.dims[1] + head);
      for (const int64_t column : columns) {
        RL_ASSIGN_OR_RETURN(const auto key, keys.At(slot, column, head / group));
        y[static_cast<size_t>(column)] = Dot(HeadOf(q, row, head), key) * double{a.scale};
      }
    }
  }
  return OkStatus();
}

Status EvalAttentionMix(const Call& call) {
  using In = operands::AttentionMix;
  const Tensor& probability = call.in(In::probability);
  KeyRows values(call.in(In::v_state), call.in(In::v_new));
  const int64_t heads = probability.dims[1];
  const int64_t group = heads / values.kv_heads();
  for (int64_t row = 0; row < probability.rows(); ++row) {
    const int64_t slot = call.in(In::q_slot).i[static_cast<size_t>(row)];
    if (slot < 0 || slot >= values.slots()) {
      return IndexError(call, "row {} has slot {}, the state {} slots", row, slot, values.slots());
    }
    for (int64_t head = 0; head < heads; ++head) {
      const auto p = HeadOf(probability, row, head);
      const auto y = Row(call.y(), row * heads + head);
      for (int64_t column = 0; column < values.columns(); ++column) {
        const double factor = p[static_cast<size_t>(column)];
        if (factor == 0) continue;
        RL_ASSIGN_OR_RETURN(const auto value, values.At(slot, column, head / group));
        for (size_t d = 0; d < y.size(); ++d) y[d] += factor * value[d];
      }
    }
  }
  return OkStatus();
}

}  // namespace rullama::reference
